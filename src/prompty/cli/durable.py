"""Options and helpers of the commands for durable runs."""

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
    Option(
        "--database",
        envvar="PROMPTY_DATABASE",
        help="The database: sqlite:///runs.db, or postgresql://… for several machines.",
    ),
]


def get_database_url(url: str | None) -> str:
    """Return the URL, or that of a file in the user's state directory."""
    if url:
        return url
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return f"sqlite:///{Path(state) / 'prompty' / 'runs.db'}"


@contextmanager
def open_client(database: str | None) -> Iterator[DurableRuntime]:
    """Yield a runtime without a worker. An error ends the command with its message."""
    runtime = DurableRuntime(get_database_url(database))
    try:
        yield runtime
    except (PromptyError, TimeoutError) as error:
        fail(str(error))
    finally:
        runtime.close()
