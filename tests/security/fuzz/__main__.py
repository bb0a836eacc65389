"""Replay an input, or run many: `python -m tests.security.fuzz TARGET SEED [COUNT]`."""

import sys
import time
import traceback

from tests.security.fuzz.runner import Report, make_case, run_case, run_seeds
from tests.security.fuzz.targets import TARGETS


def main(name: str, seed: str, count: str = "1") -> None:
    target, first = TARGETS[name], int(seed)
    if int(count) > 1:
        started = time.monotonic()
        report = run_seeds(target, range(first, first + int(count)), Report(name))
        print(name, report.figures, f"{time.monotonic() - started:.0f} s")
        print("\n".join([*report.foreign, *report.slow]))
        return
    case = make_case(target, first)
    print(repr(case.shown)[:20_000])
    try:
        print("returned", case.run())
    except target.allowed as error:
        print(f"{type(error).__name__}: {error}")
    except BaseException:
        traceback.print_exc()
    print(f"{run_case(target, case)[1] * 1000:.2f} ms for {case.size} bytes")


main(*sys.argv[1:])
