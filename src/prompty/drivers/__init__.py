"""Does what the loop decides: one driver for sync code, one for async code."""
