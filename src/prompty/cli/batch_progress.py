"""How a batch comes along: a bar on a terminal, a line now and then elsewhere."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread

from rich.progress import BarColumn, Progress, TextColumn

from prompty.batch.tally import Tally, in_words
from prompty.cli.console import err

BAR_SECONDS = 0.25
LINE_SECONDS = 10.0
Look = Callable[[], Tally]


@contextmanager
def shown_progress(look: Look) -> Iterator[None]:
    """Show how it comes along until the block ends. `look` is called from another thread."""
    ended = Event()
    thread = Thread(target=_bar if err.is_terminal else _lines, args=(look, ended), name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _bar(look: Look, ended: Event) -> None:
    columns = (BarColumn(), TextColumn("{task.percentage:>3.0f}%"), TextColumn("{task.description}"))
    with Progress(*columns, console=err, transient=True) as progress:
        task = progress.add_task("", total=None)
        while not ended.wait(BAR_SECONDS):
            tally = look()
            progress.update(
                task, description=_words(tally), total=max(tally.total, 1), completed=tally.total - tally.left
            )


def _lines(look: Look, ended: Event) -> None:
    while not ended.wait(LINE_SECONDS):
        err.print(_words(look()))


def _words(tally: Tally) -> str:
    return in_words(tally, time.monotonic())
