"""Decides what to do next; never does it."""
