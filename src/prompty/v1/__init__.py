"""Prompty v1: convert the data of a v1 file to that of the equivalent v2 file.

Pure functions on plain data: `translate` calls `model`, `tools`, `properties` and `body`. `load`, `check` and
`prompty migrate` share this mapping, and `rewrite` writes it out as YAML. Nothing here is imported for a v2 file.
"""
