"""`prompty explain --cache`: print a prompt's request with the part that is the same in every call."""

import json
from collections.abc import Iterator, Sequence

from rich.text import Text

from prompty.analysis.cache import CALLS, CacheReport, report_cache
from prompty.cli.console import out, print_json
from prompty.errors import RequestError
from prompty.model.agent import PromptAgent
from prompty.pipeline.late import resolve_late
from prompty.renderers.outline import VARIES
from prompty.safety.redaction import mask_secrets
from prompty.safety.visible import visible
from prompty.wire.blocks import Block

_PREFIX, _REST, _VALUE, _HEADING = "green", "dim", "bold yellow", "bold blue"
_END = "◀ the prefix ends here"
_SETTINGS = {"response_format": "schema", "text": "schema", "output_config": "schema"}


def print_cache(agent: PromptAgent, *, as_json: bool) -> None:
    """Print the static prefix of a prompt's requests, its tokens, and what caching it saves."""
    agent = resolve_late(agent)
    if not as_json:
        out.print(draw_cache(agent))
        return
    report = _report(agent)
    blocks = [{"path": list(block.path), "text": mask_secrets(block.text)} for block in report.prefix.blocks]
    print_json(
        {
            "prefix": blocks,
            "prefixTokens": report.prefix_tokens,
            "staticTokens": report.static_tokens,
            "minimum": report.minimum,
            "isCached": report.is_cached,
            "savesPerThousandCalls": None if report.saves is None else float(report.saves),
        }
    )


def draw_cache(agent: PromptAgent) -> Text:
    """Return a prompt's request with the static prefix in colour, and what its length means."""
    report = _report(agent)
    meaning = "\n".join(_describe(report, agent.model.id))
    return Text.assemble(*_write_request(report), (meaning, _HEADING))


def _report(agent: PromptAgent) -> CacheReport:
    report = report_cache(agent)
    if report is None:
        raise RequestError(
            "nothing can be proved about the requests of this prompt",
            "A server describes its tools, or its template, parser or provider is not one of prompty's. Run "
            "`prompty check` to see if it has a mistake.",
        )
    return report


def _write_request(report: CacheReport) -> Iterator[tuple[str, str]]:
    """Yield the texts of a request and their styles. A mark shows the end of the prefix even without colours."""
    prefix = report.prefix.blocks
    names = iter([piece.name for piece in report.varying])
    if not prefix:
        yield f"{_END}\n\n", _HEADING
    for at, block in enumerate(report.blocks):
        static = prefix[at].text if at < len(prefix) else ""
        if title := _name_block(block):
            yield f"{title}:\n", f"bold {_PREFIX if static else _REST}"
        yield _show(static), _PREFIX
        if at == len(prefix) - 1:
            yield f" {_END} ", _HEADING
        yield from _write_rest(block.text[len(static) :], names)
        yield "\n\n", _REST


def _write_rest(text: str, names: Iterator[str]) -> Iterator[tuple[str, str]]:
    for index, piece in enumerate(text.split(VARIES)):
        if index:
            yield "{{" + _show(next(names, "…") or "…") + "}}", _VALUE
        yield _show(piece), _REST


def _name_block(block: Block) -> str:
    """Return the title of a block: what it is, or whose message it begins."""
    kind = str(block.path[0])
    if kind in ("messages", "input"):
        return str(json.loads(block.head).get("role", "")) if block.head.startswith("{") else ""
    return _SETTINGS.get(kind, "tool" if kind == "tools" else "system")


def _show(text: str) -> str:
    return visible(mask_secrets(text))


def _describe(report: CacheReport, model: str) -> Sequence[str]:
    """Return what the numbers mean for the model."""
    lines = [f"The prefix has about {report.prefix_tokens:,} of {report.static_tokens:,} tokens that never change."]
    if report.minimum is None:
        return [*lines, f"It is not known from how many tokens on {model or 'the model'} caches."]
    limit = f"{model} caches from {report.minimum:,} tokens on"
    if not report.is_cached:
        return [*lines, f"{limit}, so it caches nothing of this prompt."]
    lines.append(f"{limit}, so it can cache the prefix.")
    if report.saves is None:
        return [*lines, "Its price is not in the list, so the savings are unknown."]
    return [*lines, f"That saves up to ${report.saves:.2f} in {CALLS:,} calls, if all but the first read the cache."]
