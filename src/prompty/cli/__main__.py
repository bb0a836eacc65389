"""`python -m prompty.cli`, for where the script is not on the path."""

from prompty.cli import main

main()
