"""Which rows are to be run: those that are meant, by their ids, without those that are finished."""

from collections.abc import Iterator
from pathlib import Path

from prompty.batch.ids import prompt_hash, row_hash, row_id, shown_inputs
from prompty.batch.index import Index
from prompty.batch.lines import NamedRow
from prompty.batch.rows import kinds_of, read_rows
from prompty.model.agent import PromptAgent


def rows_to_run(
    path: Path, agent: PromptAgent, numbers: range | frozenset[int], index: Index
) -> Iterator[NamedRow | None]:
    """The rows to run, in order, and None for each that is finished: whoever reads can do other things in between.
    Equal rows are counted from the first row of the file on, so that an id does not depend on what else is chosen."""
    prompt, last = prompt_hash(agent), max(numbers, default=0)
    for row in read_rows(path, kinds_of(agent)):
        if row.number > last:
            return
        shown = shown_inputs(agent, row.inputs)
        hash = row_hash(prompt, {"unreadable row": row.number} if row.problem else shown)
        id = row_id(hash, index.occurrence(hash))
        if row.number in numbers:
            finished = index.is_finished(id)
            yield None if finished else NamedRow(row=row, id=id, shown=shown, interrupted=index.interrupted(id))
