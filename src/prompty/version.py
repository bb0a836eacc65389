__version__ = "0.2.0"

# What does not exist yet is None, and nothing prints it. `tests/architecture/test_site.py` compares mkdocs.yml,
# pyproject.toml and the extension with these two.
SITE: str | None = None
REPOSITORY: str | None = None

# What pip installs: there is no release, so a checkout.
SOURCE = "path/to/prompty-python"


def build_install_command(extras: str = "") -> str:
    """Return the command that installs prompty with some of its extras."""
    return f"pip install '{SOURCE}[{extras}]'" if extras else f"pip install '{SOURCE}'"
