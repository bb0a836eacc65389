"""Progress of a batch: counters, rate and remaining time."""

from dataclasses import dataclass, replace
from decimal import Decimal

from prompty.batches.records import RowUsage
from prompty.loop.budget import tokens_of
from prompty.model.message import Json


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchProgress:
    """Counters. `total`: rows selected; `earlier`: rows finished by a previous run; `cost`: sum of the known costs,
    a lower bound unless `priced`. Immutable, so that another thread can display it."""

    total: int
    earlier: int = 0
    done: int = 0
    failed: int = 0
    tokens: int = 0
    cost: Decimal | None = None
    priced: bool = True
    started: float = 0.0

    @property
    def left(self) -> int:
        return max(self.total - self.earlier - self.done - self.failed, 0)

    def count_earlier(self) -> "BatchProgress":
        return replace(self, earlier=self.earlier + 1)

    def count_row(self, used: RowUsage, *, failed: bool = False) -> "BatchProgress":
        was_called = used.attempts != 0
        return replace(
            self,
            done=self.done + (not failed),
            failed=self.failed + failed,
            tokens=self.tokens + tokens_of(used.usage),
            cost=self.cost if used.cost is None else (self.cost or Decimal()) + used.cost,
            priced=self.priced and (used.cost is not None or not was_called),
        )

    def rate(self, now: float) -> float:
        """Return rows per second."""
        seconds = now - self.started
        return (self.done + self.failed) / seconds if seconds > 0 else 0.0

    def to_json(self, now: float) -> Json:
        counts: Json = {name: getattr(self, name) for name in ("total", "earlier", "done", "failed", "left", "tokens")}
        cost = None if self.cost is None else float(self.cost)
        return {**counts, "cost": cost, "rate": round(self.rate(now), 3), "seconds": round(now - self.started, 3)}

    def format_line(self, now: float) -> str:
        rate = self.rate(now)
        parts = [f"{self.total - self.left:,} of {self.total:,} rows", f"{rate:,.1f} rows/s", f"{self.tokens:,} tokens"]
        if self.cost is not None:
            parts.append(f"{'' if self.priced else '≥ '}${self.cost:,.4f}")
        parts.append(f"{self.failed:,} failed")
        if rate and self.left:
            minutes, seconds = divmod(round(self.left / rate), 60)
            parts.append(f"{minutes // 60}:{minutes % 60:02}:{seconds:02} left")
        return " · ".join(parts)
