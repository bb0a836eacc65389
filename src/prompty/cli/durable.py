"""What the commands about durable runs share: the database, and the runtime on it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

from typer import Option

from prompty.cli.console import fail
from prompty.durable.runtime import DurableRuntime
from prompty.errors import PromptyError

DatabaseUrl = Annotated[
    str | None,
    Option("--database", envvar="PROMPTY_DATABASE", help="sqlite:///runs.db, or postgresql://… for many workers."),
]


def database_url(given: str | None) -> str:
    """The database that was named, or a file where people's programs keep such things."""
    if given:
        return given
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return f"sqlite:///{Path(state) / 'prompty' / 'runs.db'}"


@contextmanager
def reading(database: str | None) -> Iterator[DurableRuntime]:
    """A runtime that runs nothing. What goes wrong ends the command with a message."""
    runtime = DurableRuntime(database_url(database))
    try:
        yield runtime
    except (PromptyError, TimeoutError) as error:
        fail(str(error))
    finally:
        runtime.close()
