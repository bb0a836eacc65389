"""How a batch stands: counts, and what follows from them."""

from dataclasses import dataclass, replace
from decimal import Decimal

from prompty.batch.lines import Spent
from prompty.loop.budget import tokens_of
from prompty.model.message import Json


@dataclass(frozen=True, kw_only=True, slots=True)
class Tally:
    """`total` rows are meant, of which `earlier` ones were finished before. `cost` is what is known of it."""

    total: int
    earlier: int = 0
    done: int = 0
    failed: int = 0
    tokens: int = 0
    cost: Decimal | None = None
    priced: bool = True
    began: float = 0.0

    @property
    def left(self) -> int:
        return max(self.total - self.earlier - self.done - self.failed, 0)

    def skipped(self) -> "Tally":
        """A row was finished before."""
        return replace(self, earlier=self.earlier + 1)

    def counted(self, spent: Spent, *, failed: bool = False) -> "Tally":
        """A row has ended. A cost that is not known makes the sum a part of it."""
        answered = spent.attempts != 0
        return replace(
            self,
            done=self.done + (not failed),
            failed=self.failed + failed,
            tokens=self.tokens + tokens_of(spent.usage),
            cost=self.cost if spent.cost is None else (self.cost or Decimal()) + spent.cost,
            priced=self.priced and (spent.cost is not None or not answered),
        )

    def rate(self, now: float) -> float:
        """Rows in a second."""
        seconds = now - self.began
        return (self.done + self.failed) / seconds if seconds > 0 else 0.0

    def seconds_left(self, now: float) -> float | None:
        """How long it will take yet, if it goes on like this."""
        rate = self.rate(now)
        return self.left / rate if rate else None

    def to_json(self, now: float) -> Json:
        counts: Json = {name: getattr(self, name) for name in ("total", "earlier", "done", "failed", "left", "tokens")}
        cost = None if self.cost is None else float(self.cost)
        return {**counts, "cost": cost, "rate": round(self.rate(now), 3), "seconds": round(now - self.began, 3)}


def in_words(tally: Tally, now: float) -> str:
    """A line for people."""
    parts = [f"{tally.total - tally.left:,} of {tally.total:,} rows", f"{tally.rate(now):,.1f} rows/s"]
    parts.append(f"{tally.tokens:,} tokens")
    if tally.cost is not None:
        parts.append(f"{'' if tally.priced else '≥ '}${tally.cost:,.4f}")
    parts.append(f"{tally.failed:,} failed")
    if (seconds := tally.seconds_left(now)) is not None and tally.left:
        parts.append(f"{duration(seconds)} left")
    return " · ".join(parts)


def duration(seconds: float) -> str:
    """Seconds as people say them."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}"
