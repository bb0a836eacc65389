"""A batch in one process, killed at random moments and started again."""

import random
import time
from pathlib import Path

import pytest

from tests.batch.folder import Folder, numbers_of, until
from tests.batch.hostile import Hostile
from tests.soak import SOAK, Keep

pytestmark = [pytest.mark.process, pytest.mark.nightly]

KILLS = 300 if SOAK else 30
ROWS = 20 * KILLS
# While processes are killed, answers take so long that no machine is done with the rows before the last kill: at most
# 8 rows each time they pass, and half a second for each kill, would be as many rows as there are.
SLOW, FAST = 0.2, 0.02


def test_a_batch_that_is_killed_at_random_loses_nothing_and_repeats_only_what_it_tells(
    tmp_path: Path, keep: Keep
) -> None:
    chance = random.Random(8)  # noqa: S311  not for secrets
    with Hostile(busy=0.01, broken=0.01, cut=0.005, seconds=SLOW) as provider:
        folder = Folder(tmp_path, provider.url)
        folder.write_rows({"q": f"n{number}", "long": "x" * 5000 * (number % 3)} for number in range(ROWS))
        kills = 0
        while kills < KILLS and len(numbers_of(folder_results(folder))) < ROWS:
            process, asked = folder.start("--concurrency", "8"), provider.asked.total()
            if chance.random() < 0.8:  # most of them while rows are under way, some while it starts
                until(lambda: provider.asked.total() > asked)  # noqa: B023  it is called here
            time.sleep(chance.random() * 0.3)
            process.kill()
            process.communicate()
            kills += 1
        provider.seconds = FAST
        folder.run()
    assert kills == KILLS
    lines = folder.results()
    assert numbers_of(lines) == list(range(1, ROWS + 1))
    assert len({line["id"] for line in lines}) == ROWS
    for line in lines:
        question, interrupted = f"n{line['row'] - 1}", line.get("interrupted", 0)
        assert line["result"] == f"answer {question}"
        asked, told = provider.asked[question], line["attempts"]
        assert asked == told if not interrupted else told <= asked <= told + 9 * interrupted
        assert provider.answered[question] <= 1 + interrupted
    keep(
        kills=kills,
        rows=ROWS,
        answers_lost_with_a_process=provider.answered.total() - ROWS,
        told_as_interrupted=sum(line.get("interrupted", 0) for line in lines),
    )


def folder_results(folder: Folder) -> list[dict[str, object]]:
    """What stands in the output between two processes: the last line may be a part of one."""
    content = folder.out.read_bytes() if folder.out.exists() else b""
    return [{"row": at} for at in range(content.count(b"\n"))]
