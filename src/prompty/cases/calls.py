"""Match expected tool calls with calls that were made. Pure functions on positions and a predicate."""

from collections.abc import Callable

Fits = Callable[[int, int], bool]  # True if an expected call fits an actual one


def find_missing_call(wanted: int, found: int, fits: Fits, *, any_order: bool = False) -> int | None:
    """Return the position of an expected call that has no partner, or None if each has a partner of its own.

    The partners come in the same order, unless `any_order`. Other calls may come before, between and after them.
    """
    return _match_any_order(wanted, found, fits) if any_order else _match_in_order(wanted, found, fits)


def _match_in_order(wanted: int, found: int, fits: Fits) -> int | None:
    """Take the first call that fits each time: a later one leaves fewer for the rest."""
    position = 0
    for expected in range(wanted):
        while position < found and not fits(expected, position):
            position += 1
        if position == found:
            return expected
        position += 1
    return None


def _match_any_order(wanted: int, found: int, fits: Fits) -> int | None:
    """Assign calls one by one. One that is taken is freed if its holder can take another."""
    holders: dict[int, int] = {}

    def assign(expected: int, tried: set[int]) -> bool:
        for position in range(found):
            if position not in tried and fits(expected, position):
                tried.add(position)
                if position not in holders or assign(holders[position], tried):
                    holders[position] = expected
                    return True
        return False

    return next((expected for expected in range(wanted) if not assign(expected, set())), None)
