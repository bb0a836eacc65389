"""Verdicts as JSON, for those who decide in another program: behind a web page, or at the other end of a queue."""

from dataclasses import asdict

from prompty.errors import RequestError
from prompty.loop.effects import Rewrite, Verdict
from prompty.loop.policy import parse_verdict, use_result
from prompty.model.message import Json

Decision = Verdict | Rewrite


def verdict_to_json(verdict: object) -> Json:
    """Return the JSON of a verdict: of `True`, `False`, `deny("why")`, `later()` or `use_result(value)`."""
    if isinstance(verdict, Rewrite):
        return {"result": verdict.value}
    return asdict(parse_verdict(verdict, "the verdict"))


def verdict_from_json(value: object) -> Decision:
    """Read a verdict: `true`, `false`, `{"allowed": false, "reason": "why"}` or `{"result": value}`."""
    match value:
        case bool():
            return Verdict(value)
        case {"result": result, **rest} if not rest:
            return use_result(result)
        case {"allowed": bool(allowed), **rest} if rest.keys() <= {"reason", "deferred"}:
            match rest.get("reason", ""), rest.get("deferred", False):
                case str(reason), bool(deferred):
                    return Verdict(allowed, reason, deferred)
    raise RequestError(
        f"{value!r:.100} is not a verdict",
        'Write true, false, {"allowed": false, "reason": "why"} or {"result": value}.',
    )
