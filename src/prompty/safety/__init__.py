"""Guards for text and data from outside: hidden characters, secrets, YAML and JSON.

The lowest layer: it imports nothing else of the package.
"""
