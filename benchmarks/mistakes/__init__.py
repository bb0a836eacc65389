"""The mistakes that people make, and what they read today. `python -m benchmarks.mistakes` runs all of them.

Each YAML file beside this one has the mistakes of one group. `servers.yaml` has the answers of model servers that some
of them need, and `grades.yaml` what somebody who did not write the mistakes thinks of each message.
"""
