"""What prompty costs, measured against what it stands on. `python -m benchmarks.run` runs all of it."""
