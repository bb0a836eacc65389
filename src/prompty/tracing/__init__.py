"""What is seen of a run, and what must never be."""
