"""Turns that survive their process: each model call, tool call and decision is kept by an engine as it happens."""
