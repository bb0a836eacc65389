"""Estimate what a batch will cost, before a row is run.

A few thousand rows are rendered for their lengths, and the tokens of 200 of them are counted: by the provider if it may
be asked and has an endpoint for that, otherwise from their characters. The tokens of a row are the mean length, times
the tokens of a character in the counted rows. All samples are the same whenever the file is. An unknown price is None,
never 0.
"""

import asyncio
import json
from array import array
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from decimal import Decimal
from math import ceil, floor, sqrt
from pathlib import Path
from random import Random
from statistics import fmean, stdev, variance
from typing import NamedTuple

from prompty.batches.records import PlannedRow
from prompty.batches.row_index import RowIndex, plan_rows
from prompty.batches.rows import get_input_kinds, read_rows
from prompty.errors import ModelError, PromptyError, RequestError
from prompty.model.agent import PromptAgent
from prompty.model.content import TextPart
from prompty.model.message import Json, Message, Reply, Usage
from prompty.model.request import Function, WireRequest
from prompty.pipeline.caching import BEFORE_TEXT, list_texts
from prompty.pipeline.prepare import prepare
from prompty.pipeline.request import build_request, has_kinds, list_declared_functions
from prompty.pricing import get_pricer
from prompty.providers import PROVIDERS, Api, RequestBase
from prompty.providers.fitting import fit_request
from prompty.providers.token_counts import CountEndpoint, count_tokens, find_count_endpoint
from prompty.tokens import ERROR, FACTOR, estimate_tokens, is_latin

COUNTED_ROWS = 200
RENDERED_ROWS = 5_000
CONCURRENT_COUNTS = 8
MIN_RECORDS = 10  # outputs in a file, to say something about those to come
_SURE = 3  # standard errors to each side
_SEED = 0  # the same sample of a file every time
_APIS = ("chat", "responses", "messages", "embeddings")


class TokenRange(NamedTuple):
    """Tokens of one row. `high` is None if nothing limits them."""

    low: float
    high: float | None


class PriceRange(NamedTuple):
    """Dollars of all rows. `low` is None if it is unknown, and `high` also if the output has no limit."""

    low: Decimal | None
    high: Decimal | None


class RowCounts(NamedTuple):
    """Tokens of the counted rows, and where the count is from. `error` is its own, besides that of the sample."""

    tokens: Sequence[float]
    source: str
    error: tuple[float, float] = (1.0, 1.0)


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchEstimate:
    """What a batch of `rows` would cost. `mean_input`, `input` and `output` are the tokens of one row on average.

    `prices` are those of all rows without a cache: run live, and as a batch of the provider.
    """

    rows: int
    failing: int
    counted: int
    source: str
    mean_input: float
    input: TokenRange
    output: TokenRange
    output_source: str
    prices: Mapping[str, PriceRange]
    notes: Sequence[str] = field(default_factory=tuple)

    def to_json(self) -> Json:
        return {
            "rows": self.rows,
            "failing": self.failing,
            "counted": self.counted,
            "source": self.source,
            "input_tokens": self._total(self.input) | {"estimate": round(self.mean_input * self.rows)},
            "output_tokens": self._total(self.output) | {"source": self.output_source},
            "prices": {
                name: {"low": _to_float(price.low), "high": _to_float(price.high)}
                for name, price in self.prices.items()
            },
            "notes": list(self.notes),
        }

    def _total(self, tokens: TokenRange) -> Json:
        high = None if tokens.high is None else round(tokens.high * self.rows)
        return {"low": round(tokens.low * self.rows), "high": high}


def estimate_batch(
    agent: PromptAgent,
    rows: Path,
    numbers: range | frozenset[int],
    records: Sequence[Path] = (),
    *,
    connect: bool = False,
) -> BatchEstimate:
    """Estimate the rows with these numbers, except those that are in the `records` of an earlier run.

    With `connect`, the provider counts the tokens. Without it, nothing connects.
    """
    return asyncio.run(_Estimator(agent, rows, connect=connect).estimate(numbers, records))


@dataclass(frozen=True, slots=True)
class _Rendered:
    """Lengths of the rendered rows, and the messages of those to count."""

    lengths: Sequence[int]
    counted_lengths: Sequence[int]
    counted: Sequence[tuple[list[Message], str]]
    failing: int


class _Estimator:
    def __init__(self, agent: PromptAgent, rows: Path, *, connect: bool) -> None:
        self.agent, self.rows, self.connect = agent, rows, connect
        self.provider = agent.registry[PROVIDERS].get(agent.model.provider)
        self.api: Api = self.provider.api_for(agent)
        if self.api.name not in _APIS:
            raise RequestError(f"prices of '{agent.model.api_type}' are not by the token", "Leave out --estimate.")
        self.base: RequestBase = fit_request(agent, self.api)
        self.functions: list[Function] = list_declared_functions(agent)
        self.notes: list[str] = []

    async def estimate(self, numbers: range | frozenset[int], records: Sequence[Path]) -> BatchEstimate:
        left = list_unfinished(self.rows, self.agent, numbers, records)
        rendered = self._render(left)
        runnable = round(len(left) * len(rendered.lengths) / max(len(rendered.lengths) + rendered.failing, 1))
        failing = len(left) - runnable
        if not rendered.counted:
            raise RequestError(
                "no row is left to estimate" if not left else "no row can be rendered", "Run the batch to see why."
            )
        counts = await self._count(rendered)
        mean, spread = extrapolate(rendered.counted_lengths, counts.tokens, rendered.lengths, runnable)
        input_ = TokenRange(max(mean - spread, 0) * counts.error[0], (mean + spread) * counts.error[1])
        output, output_source = self._estimate_output(records)
        self._add_notes(rendered, is_counted=counts.error == (1.0, 1.0))
        return BatchEstimate(
            rows=runnable,
            failing=failing,
            counted=len(counts.tokens),
            source=counts.source,
            mean_input=mean,
            input=input_,
            output=output,
            output_source=output_source,
            prices=self._price(runnable, input_, output),
            notes=self.notes,
        )

    def _render(self, numbers: Sequence[int]) -> _Rendered:
        """Render a sample of the rows, and keep the messages of those that are counted."""
        chosen = Random(_SEED).sample(numbers, min(len(numbers), RENDERED_ROWS))  # noqa: S311  not for secrets
        counted, wanted, last = set(chosen[:COUNTED_ROWS]), set(chosen), max(chosen, default=0)
        lengths, counted_lengths, kept, failing = [], [], [], 0
        for row in read_rows(self.rows, get_input_kinds(self.agent)):
            if row.number > last:
                break
            if row.number not in wanted:
                continue
            try:
                if row.problem is not None:
                    raise row.problem
                messages = prepare(self.agent, row.inputs, extra_inputs="ignore")
                text = join_texts(self._build(messages, self.base))
            except PromptyError:
                failing += 1
                continue
            lengths.append(len(text))
            if row.number in counted:
                counted_lengths.append(len(text))
                kept.append((messages, text))
        return _Rendered(lengths, counted_lengths, kept, failing)

    def _build(self, messages: Sequence[Message], base: RequestBase) -> WireRequest:
        return build_request(self.agent, messages, base, functions=self.functions)

    async def _count(self, rendered: _Rendered) -> RowCounts:
        endpoint = find_count_endpoint(self.agent)
        if endpoint is not None and not self.connect:
            self.notes.append(f"{endpoint.host} is not asked to count the tokens. To ask it, add --connect.")
        elif endpoint is not None:
            try:
                tokens = await self._count_at(endpoint, [messages for messages, _ in rendered.counted])
                return RowCounts(tokens, f"counted by {endpoint.host}")
            except (ModelError, RequestError) as error:
                cause = error.cause if isinstance(error, ModelError) else str(error).partition("\n")[0]
                self.notes.append(f"{endpoint.host} did not count the tokens: {cause}")
        texts = [text for _, text in rendered.counted]
        tokens = [float(estimate_tokens(text)) for text in texts]
        if all(map(is_latin, texts)):
            limits = (1 / (1 + ERROR), 1 / (1 - ERROR))
            return RowCounts(tokens, f"estimated from characters, within {ERROR:.0%}", limits)
        source = f"estimated from characters, within a factor of {FACTOR} (not in Latin script)"
        return RowCounts(tokens, source, (1 / FACTOR, FACTOR))

    async def _count_at(self, endpoint: CountEndpoint, rows: Sequence[list[Message]]) -> list[float]:
        transport = self.provider.transport_async_for(self.agent)
        base, free = fit_request(self.agent, endpoint.api), asyncio.Semaphore(CONCURRENT_COUNTS)

        async def count(messages: list[Message]) -> float:
            async with free:
                return await count_tokens(endpoint, transport, self._build(messages, base))

        tokens = [await count(rows[0])]  # alone, because most reasons to refuse one row are reasons to refuse all
        return tokens + await asyncio.gather(*map(count, rows[1:]))

    def _estimate_output(self, records: Sequence[Path]) -> tuple[TokenRange, str]:
        """Return the output tokens of one row, and where they are from."""
        if self.api.name == "embeddings":
            return TokenRange(0, 0), "embeddings have none"
        earlier = [count for path in records for count in _read_outputs(path)]
        if len(earlier) >= MIN_RECORDS:
            mean, spread = fmean(earlier), _SURE * stdev(earlier) / sqrt(len(earlier))
            return TokenRange(max(mean - spread, 0), mean + spread), f"as in {len(earlier):,} finished rows"
        if (most := self.agent.model.options.max_output_tokens) is not None:
            return TokenRange(0, most), f"at most maxOutputTokens, {most:,} for each row"
        most = self.api.facts.find("max_output")[0] if self.api.facts else None
        if most is not None:
            return TokenRange(0, most), f"at most the model's limit, {most:,} for each row"
        return TokenRange(0, None), "without a limit, because the file has no maxOutputTokens"

    def _price(self, rows: int, input_: TokenRange, output: TokenRange) -> dict[str, PriceRange]:
        low = Usage(input_tokens=floor(input_.low), output_tokens=floor(output.low))
        high = None
        if input_.high is not None and output.high is not None:
            high = Usage(input_tokens=ceil(input_.high), output_tokens=ceil(output.high))
        # A provider's batch runs no tools.
        ways = {"live": False} if self.agent.tools else {"live": False, "batch": True}
        return {
            way: PriceRange(*(_price_rows(self.agent, usage, rows, batch=batch) for usage in (low, high)))
            for way, batch in ways.items()
        }

    def _add_notes(self, rendered: _Rendered, *, is_counted: bool) -> None:
        if self.agent.tools:
            self.notes.append(
                "The prompt has tools: one call for each row is estimated, and each further one adds to it."
            )
        if has_kinds(self.agent):
            self.notes.append("Tools that a server describes are not counted.")
        parts = (part for messages, _ in rendered.counted for message in messages for part in message.content)
        if not is_counted and not all(isinstance(part, TextPart) for part in parts):
            self.notes.append("Images, audio and files are not counted.")


def list_unfinished(
    rows: Path, agent: PromptAgent, numbers: range | frozenset[int], records: Sequence[Path]
) -> Sequence[int]:
    """Return the numbers of the rows that are not in the records of an earlier run."""
    if not any(path.exists() for path in records):
        return numbers if isinstance(numbers, range) else sorted(numbers)
    with closing(RowIndex()) as index:
        for path in records:
            for record in _read_records(path):
                index.mark_finished(str(record.get("id")))
        planned = plan_rows(rows, agent, numbers, index)
        return array("Q", [row.row.number for row in planned if isinstance(row, PlannedRow)])


def _price_rows(agent: PromptAgent, usage: Usage | None, rows: int, *, batch: bool) -> Decimal | None:
    """Return the price of rows that use these tokens each. Large requests may have another price per token."""
    cost = None if usage is None else get_pricer(agent, required=False, batch=batch)(Reply(usage=usage))
    return None if cost is None else cost * rows


def extrapolate(
    lengths: Sequence[int], tokens: Sequence[float], all_lengths: Sequence[int], rows: int
) -> tuple[float, float]:
    """Return the mean tokens of all rows, and its error: of the counted rows, and of the mean length if some rows were
    not rendered."""
    count, rate = len(tokens), sum(tokens) / max(sum(lengths), 1)  # tokens of a character
    error = 0.0
    if rows > count > 1:
        rest = [one - rate * length for length, one in zip(lengths, tokens, strict=True)]
        error += sum(one * one for one in rest) / (count - 1) / count * (1 - count / rows)
    if rows > len(all_lengths) > 1:
        error += rate**2 * variance(all_lengths) / len(all_lengths) * (1 - len(all_lengths) / rows)
    return rate * fmean(all_lengths), _SURE * sqrt(error)


def join_texts(request: WireRequest) -> str:
    """Return all text of a request: schema, tools, instructions and messages."""
    if "input" in request.body and isinstance(request.body["input"], str):
        return request.body["input"]
    before = (json.dumps(request.body[name], ensure_ascii=False) for name in BEFORE_TEXT if request.body.get(name))
    return "\n".join([*before, *(text for _, text in list_texts(request.body) if text)])


def _read_outputs(path: Path) -> Iterator[int]:
    for record in _read_records(path):
        usage = record.get("usage")
        count = usage.get("output_tokens") if isinstance(usage, dict) else None
        if isinstance(count, int) and "result" in record:
            yield count


def _read_records(path: Path) -> Iterator[Json]:
    """Yield the records of a file, which another process may be writing: lines that are not whole are left out."""
    with suppress(FileNotFoundError), path.open("rb") as lines:
        for line in lines:
            with suppress(ValueError):
                record = json.loads(line)
                if isinstance(record, dict):
                    yield record


def _to_float(price: Decimal | None) -> float | None:
    return None if price is None else float(price)
