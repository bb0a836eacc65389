"""The agent loop: decides what to do next, and leaves doing it to a driver."""
