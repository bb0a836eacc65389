"""Drivers perform the effects of the loop: one for sync code, one for async code."""
