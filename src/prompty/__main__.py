"""`python -m prompty`, for systems where the `prompty` script is not on the path."""

from prompty.cli import main

main()
