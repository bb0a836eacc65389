"""Prompty v1: from the data of a v1 file to that of the v2 file it corresponds to.

Pure functions on plain data: `translate` calls `model`, `tools`, `properties` and `body`. `load`, `check` and
`prompty migrate` share this mapping, and `rewrite` writes it out as YAML. Nothing here is imported for a v2 file.
"""
