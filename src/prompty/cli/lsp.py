"""`prompty lsp`: the language server for editors."""

from typer import Exit

from prompty.lsp.server import start_server


def serve_editor() -> None:
    """Start the language server that editors use for .prompty files and test files.

    The editor starts it, and talks to it over standard input and output. It shows the problems of `prompty check` while
    you type, completes and explains keys, renames inputs, and previews the request.
    """
    raise Exit(start_server())
