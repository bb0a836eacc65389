"""The part of prompty-runtime that still works when another distribution overwrites the package `prompty`.

It starts the command and inspects the installation. It imports the standard library alone.
"""
