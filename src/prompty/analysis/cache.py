"""How much of a prompt's requests a provider can cache, and whether it pays to move lines of the prompt.

Providers cache the beginning of a request from a minimum of tokens on. The minimum is one of the facts about models.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import NamedTuple

from prompty.errors import Problem, PromptyError
from prompty.model.agent import PromptAgent
from prompty.model.marker import ROLE_MARK, read_marker
from prompty.model.message import Reply, Usage
from prompty.pipeline.compose import BodyPlaces
from prompty.pipeline.source_map import Finding, split_lines
from prompty.pipeline.static_prefix import StaticPrefix, outline_body, outline_request, prove_static_prefix
from prompty.pricing import get_pricer
from prompty.providers import PROVIDERS
from prompty.renderers.outline import VARIES, Varying
from prompty.tokens import estimate_tokens
from prompty.wire.blocks import Block

CALLS = 1_000


@dataclass(frozen=True, kw_only=True, slots=True)
class CacheReport:
    """The static prefix of a prompt's requests, in tokens.

    `blocks` are those of a request, with VARIES for what inputs decide. `static_tokens` counts the text that no input
    decides about, wherever it is. `minimum` is the model's, if it is known. `saves` is the most that caching the prefix
    saves in 1,000 calls, in dollars: one call writes it, and all others read it.
    """

    prefix: StaticPrefix
    blocks: Sequence[Block]
    varying: Sequence[Varying]
    prefix_tokens: int
    static_tokens: int
    minimum: int | None
    saves: Decimal | None

    @property
    def is_cached(self) -> bool:
        """True if the prefix is known to be long enough."""
        return self.minimum is not None and self.prefix_tokens >= self.minimum


def report_cache(agent: PromptAgent) -> CacheReport | None:
    """Return what a provider can cache of a prompt's requests. Return None if nothing can be proved about them."""
    try:
        api = agent.registry[PROVIDERS].get(agent.model.provider).api_for(agent)
        outline = outline_body(agent)
    except PromptyError:  # an unknown provider, or a template with a mistake
        return None
    blocks = outline_request(agent, api)
    if outline is None or not blocks:
        return None
    prefix = prove_static_prefix(agent, api)
    static = [block.text.replace(VARIES, "") for block in blocks]
    tokens = estimate_tokens(prefix.text)
    minimum = api.facts.find("cache_min")[0] if api.facts else None
    return CacheReport(
        prefix=prefix,
        blocks=blocks,
        varying=outline.varying,
        prefix_tokens=tokens,
        static_tokens=sum(map(estimate_tokens, [*static, outline.later.replace(ROLE_MARK, "")])),
        minimum=minimum,
        saves=compute_savings(agent, tokens) if minimum is not None and tokens >= minimum else None,
    )


def compute_savings(agent: PromptAgent, tokens: int) -> Decimal | None:
    """Return the most that caching so many tokens saves in 1,000 calls, in dollars, or None if a price is unknown."""
    price = get_pricer(agent, required=False)
    plain = price(Reply(usage=Usage(input_tokens=tokens)))
    read = price(Reply(usage=Usage(input_tokens=tokens, cache_read_tokens=tokens)))
    write = price(Reply(usage=Usage(input_tokens=tokens, cache_write_tokens=tokens))) or plain
    if plain is None or read is None or write is None:
        return None
    return max(Decimal(0), (CALLS - 1) * (plain - read) - (write - plain))


class Move(NamedTuple):
    """Lines of a body that would have to move down for the model to cache the prompt.

    `name` is the first input in them, `lines` the first and the last line of each range, and `tokens` the length of the
    prefix afterwards.
    """

    name: str
    lines: tuple[tuple[int, int], ...]
    tokens: int


def find_move(agent: PromptAgent, report: CacheReport) -> Move | None:
    """Return the lines to move so that the prefix is long enough. Return None unless that pays: the prefix is too
    short for the model, and all static text together is not."""
    if report.minimum is None or not report.prefix_tokens < report.minimum <= report.static_tokens:
        return None
    before = report.prefix_tokens - estimate_tokens(_get_template_text(report.prefix))  # tools and the schema
    lines, moved = agent.instructions.split("\n"), list[Varying]()
    for piece, tokens in _measure(lines, report.varying):
        if before + tokens >= report.minimum:
            return _build_move(moved, before + tokens)
        moved.append(piece)
    return _build_move(moved, report.static_tokens)


def _get_template_text(prefix: StaticPrefix) -> str:
    return "\n".join(
        block.text for block in prefix.blocks if block.path[0] in ("messages", "input", "system", "instructions")
    )


def _measure(lines: Sequence[str], varying: Sequence[Varying]) -> Iterator[tuple[Varying, int]]:
    """Yield each piece that varies, and the tokens of the static lines before it."""
    taken = {number for piece in varying for number in range(piece.line, piece.last_line + 1)}
    for piece in varying:
        static = [
            line
            for number, line in enumerate(lines[: piece.line - 1], 1)
            if number not in taken and not read_marker(line)
        ]
        yield piece, estimate_tokens("\n".join(static))


def _build_move(moved: Sequence[Varying], tokens: int) -> Move | None:
    if not moved:
        return None
    ranges: list[tuple[int, int]] = []
    for first, last in sorted((piece.line, piece.last_line) for piece in moved):
        if ranges and first <= ranges[-1][1] + 1:
            ranges[-1] = (ranges[-1][0], max(ranges[-1][1], last))
        else:
            ranges.append((first, last))
    return Move(moved[0].name, tuple(ranges), tokens)


def find_early_inputs(
    agent: PromptAgent, places: BodyPlaces, locate: Callable[[Finding], Finding] | None
) -> list[Problem]:
    """Return a warning if moving lines would let the model cache the prompt. `locate` finds lines of a v1 body."""
    report = report_cache(agent)
    move = find_move(agent, report) if report else None
    if report is None or move is None:
        return []
    lines = split_lines(agent.instructions)
    numbers = [number for lines_of_range in move.lines for number in lines_of_range]
    later = report.static_tokens - report.prefix_tokens
    message = (
        f"`{move.name}` is before {later:,} of the {report.static_tokens:,} tokens that never change. {agent.model.id} "
        f"caches from {report.minimum:,} tokens on, and only {report.prefix_tokens:,} are at the beginning"
    )
    problem = Problem(code="early-input", message=message, fix="", severity="warning")
    findings = [Finding(*lines[number - 1].content, problem) for number in numbers]
    placed = places.problems(map(locate, findings) if locate else findings)
    saves = compute_savings(agent, move.tokens)
    gain = f"saves up to ${saves:.2f} in {CALLS:,} calls" if saves else "lets it cache them"
    moved = " and ".join(map(_name_lines, placed[::2], placed[1::2]))
    fix = (
        f"If `{move.name}` differs in most calls, moving {moved} below that text {gain}. "
        "This changes the prompt, so compare the answers before you keep it."
    )
    return [replace(placed[0], fix=fix)]


def _name_lines(first: Problem, last: Problem) -> str:
    return f"line {first.line}" if first.line == last.line else f"lines {first.line}–{last.line}"
