__version__ = "0.2.0"

# The documentation, on the GitHub Pages of the repository prompty-python/prompty. Everything that links to either
# says this address, or the repository's.
SITE = "https://prompty-python.github.io/prompty/"
