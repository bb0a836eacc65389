"""Guards for text and data from outside: hidden characters, secrets, YAML and JSON.

The lowest layer: everything may use it, and it uses nothing else of the package.
"""
