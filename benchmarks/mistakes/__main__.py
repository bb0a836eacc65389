"""Make all mistakes again, and print which messages have changed and how good they are."""

import argparse
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from multiprocessing import get_context
from textwrap import wrap

from benchmarks.mistakes.mistake import Grade, Mistake, get_fingerprint, load_grades, load_mistakes, store
from benchmarks.mistakes.perform import perform_alone

PATIENCE = 600  # seconds for all of them
AT_ONCE = 4  # some wait for retries
WIDTH = 58
GRADES = ("good", "half", "poor")


def perform_all(mistakes: Sequence[Mistake]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the messages by id, and what kept others from running."""
    context = get_context("forkserver")  # a process that has imported everything, and is alike for all of them
    context.set_forkserver_preload(["benchmarks.mistakes.preload"])
    with context.Pool(AT_ONCE, maxtasksperchild=1) as pool:
        results = pool.map_async(perform_alone, mistakes, chunksize=1).get(PATIENCE)
    done = dict(zip([mistake.id for mistake in mistakes], results, strict=True))
    messages = {name: message for name, (message, failure) in done.items() if not failure}
    return messages, {name: failure for name, (_, failure) in done.items() if failure}


def show_side_by_side(old: str, new: str) -> str:
    """Return two texts in two columns, with a bar between lines that differ."""
    rows = []
    for left, right in zip_longest(old.splitlines(), new.splitlines(), fillvalue=""):
        bar = " " if left == right else "|"
        pieces = zip_longest(wrap(left, WIDTH) or [""], wrap(right, WIDTH) or [""], fillvalue="")
        rows += [f"  {one:<{WIDTH}} {bar} {other}".rstrip() for one, other in pieces]
    return "\n".join([f"  {'stored':<{WIDTH}}   now", *rows])


def summarise(mistakes: Sequence[Mistake], messages: Mapping[str, str], grades: Mapping[str, Grade]) -> str:
    """Count the grades, and name what has changed since it was graded."""
    counts = Counter(grades.get(mistake.id, {}).get("grade") or "ungraded" for mistake in mistakes)
    graded = {
        mistake.id: grades[mistake.id].get("fingerprint", get_fingerprint(mistake.says))
        for mistake in mistakes
        if mistake.id in grades
    }
    changed = [name for name in graded if name in messages and graded[name] != get_fingerprint(messages[name])]
    numbers = ", ".join(f"{counts[grade]} {grade}" for grade in (*GRADES, "ungraded"))
    listed = "".join(f"\n  {name} ({grades[name]['grade']})" for name in changed)
    return f"{len(mistakes)} mistakes: {numbers}" + (f"\nchanged since graded:{listed}" if changed else "")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mistakes", description=__doc__)
    parser.add_argument("--only", nargs="+", metavar="ID", help="make only these mistakes")
    parser.add_argument(
        "--write", action="store_true", help="store the new messages, and the fingerprints of new grades"
    )
    options = parser.parse_args()
    mistakes = [mistake for mistake in load_mistakes() if not options.only or mistake.id in options.only]
    if unknown := set(options.only or ()) - {mistake.id for mistake in mistakes}:
        parser.error(f"no mistake is called {', '.join(sorted(unknown))}")
    messages, failures = perform_all(mistakes)
    stored = {mistake.id: mistake.says for mistake in mistakes}
    changed = {name: message for name, message in messages.items() if message != stored[name]}
    for name, message in changed.items():
        print(f"{name}\n{show_side_by_side(stored[name], message)}\n")
    for name, failure in failures.items():
        print(f"{name} cannot be run: {failure}")
    if options.write:
        store(changed)
    print(f"{len(changed)} messages changed{' and are stored' if options.write and changed else ''}")
    print(summarise(mistakes, messages, load_grades()))
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
