"""`python -m prompty_runtime doctor`, for when the `prompty` command belongs to another distribution."""

from prompty_runtime.command import main

main()
