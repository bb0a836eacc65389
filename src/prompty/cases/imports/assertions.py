"""Convert the assertions of promptfoo to checks. Pure functions on plain data."""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from prompty.cases.imports.draft import BY_HAND, DraftCheck
from prompty.cases.imports.templates import escape_pattern, substitute
from prompty.model.message import Json
from prompty.safety.schemas import find_pattern_problem

_NOT = "not-"
_KNOWN_KEYS = frozenset({"type", "value", "threshold", "metric", "description"})
_CODE = frozenset({"javascript", "python", "ruby", "webhook"})
_JUDGES = frozenset(
    {
        "llm-rubric", "g-eval", "factuality", "model-graded-closedqa", "model-graded-factuality", "answer-relevance",
        "context-faithfulness", "context-recall", "context-relevance", "conversation-relevance", "select-best", "pi",
        "search-rubric", "max-score",
    }
)  # fmt: skip
_CODE_FIX = "Write a function, name it with `python: module:function`, and pass its file with --checks."
_JUDGE_FIX = "Write a judge prompt, and name it with `judge: FILE.prompty`."
_SIMILAR_FIX = "Write `similar: {to: …, prompt: embed.prompty}` with an embedding prompt."
_JSON_FIX = "Declare the shape under `outputs:` in the prompt, and check it with `json_schema:`."


class Unsupported(ValueError):
    """An assertion has no counterpart. `fix` says what to do instead."""

    def __init__(self, message: str, fix: str = BY_HAND) -> None:
        super().__init__(message)
        self.fix = fix


class _Assertion(NamedTuple):
    kind: str
    negated: bool
    value: Any
    threshold: Any


def convert_assertion(data: object, values: Mapping[str, object]) -> Iterator[DraftCheck]:
    """Yield the checks of an assertion. `values` are those of the variables in it. Raise Unsupported."""
    if not isinstance(data, dict) or not isinstance(data.get("type"), str):
        raise Unsupported("the assertion has no type")
    if data["type"] == "assert-set" and data.keys() <= {"type", "assert", "metric"}:
        for inner in _to_list(data.get("assert")):
            yield from convert_assertion(inner, values)
        return
    kind = data["type"].removeprefix(_NOT)
    if unknown := sorted(str(key) for key in data.keys() - _KNOWN_KEYS):
        raise Unsupported(f"`{unknown[0]}` of the assertion `{data['type']}` has no counterpart")
    value = _fill(data.get("value"), values)
    yield _convert(_Assertion(kind, data["type"].startswith(_NOT), value, data.get("threshold")))


def parse_expected(text: str) -> Json:
    """Parse the cell of a column `__expected`: `contains: Ada`, `not-equals: x`, or the exact text."""
    kind, colon, value = text.partition(":")
    name = kind.strip().partition("(")[0]
    if colon and (name.removeprefix(_NOT) in _CONVERTERS or name.removeprefix(_NOT) in _CODE | _JUDGES):
        is_list = name.removeprefix(_NOT) in ("contains-all", "contains-any", "icontains-all", "icontains-any")
        cell = value.strip()
        parsed: Json = {"type": name, "value": [part.strip() for part in cell.split(",")] if is_list else cell}
        if "(" in kind:
            parsed["threshold"] = kind.partition("(")[2].strip(" )")
        return parsed
    if colon and name in ("fn", "eval", "grade"):
        return {"type": "llm-rubric" if name == "grade" else "javascript", "value": value.strip()}
    if text.strip() in ("is-json", "contains-json"):
        return {"type": text.strip()}
    return {"type": "equals", "value": text}


def _convert(assertion: _Assertion) -> DraftCheck:
    kind = assertion.kind
    if kind in _CODE:
        raise Unsupported(f"`{kind}` names code, which is never run", _CODE_FIX)
    if kind in _JUDGES:
        raise Unsupported(f"`{kind}` asks a model for its opinion", _JUDGE_FIX)
    if kind == "similar":
        raise Unsupported("`similar` needs an embedding model", _SIMILAR_FIX)
    if kind in ("is-json", "contains-json"):
        raise Unsupported(f"`{kind}` looks into JSON, and this prompt answers with text", _JSON_FIX)
    if kind not in _CONVERTERS:
        raise Unsupported(f"the assertion `{kind}` has no counterpart")
    found = _CONVERTERS[kind](assertion)
    if not assertion.negated or kind in _NEGATING:
        return found
    pattern = found.check.get("regex")
    if not isinstance(pattern, str):
        raise Unsupported(f"`not-{kind}` has no counterpart")
    return _match(_negate(pattern))


def _convert_equals(assertion: _Assertion) -> DraftCheck:
    if isinstance(assertion.value, dict | list):
        raise Unsupported("`equals` compares JSON, and this prompt answers with text", _JSON_FIX)
    text = _to_text(assertion.value)
    return _match(rf"\A(?!{escape_pattern(text)}$)") if assertion.negated else DraftCheck("replay", {"equals": text})


def _convert_contains(assertion: _Assertion) -> DraftCheck:
    return DraftCheck("replay", {"not_contains" if assertion.negated else "contains": [_to_text(assertion.value)]})


def _convert_contains_all(assertion: _Assertion) -> DraftCheck:
    texts = _to_texts(assertion.value)
    if assertion.negated:
        return _match(_negate(_look_for_all(texts), anywhere=""))
    return DraftCheck("replay", {"contains": texts})


def _convert_contains_any(assertion: _Assertion) -> DraftCheck:
    texts = _to_texts(assertion.value)
    return DraftCheck("replay", {"not_contains": texts}) if assertion.negated else _match(_join(texts))


def _convert_icontains_all(assertion: _Assertion) -> DraftCheck:
    pattern = _look_for_all(_to_texts(assertion.value))
    return _match("(?i)" + (_negate(pattern, anywhere="") if assertion.negated else rf"\A{pattern}"))


def _convert_regex(assertion: _Assertion) -> DraftCheck:
    pattern = _to_text(assertion.value)
    if problem := find_pattern_problem(pattern):
        raise Unsupported(*problem)
    return _match(pattern)


def _convert_limit(assertion: _Assertion) -> DraftCheck:
    try:
        limit = float(assertion.threshold)
    except (TypeError, ValueError):
        raise Unsupported(f"`{assertion.kind}` has no threshold") from None
    if not 0 <= limit < 1e12:
        raise Unsupported(f"the threshold {limit:g} of `{assertion.kind}` limits nothing")
    if assertion.kind == "latency":
        return DraftCheck("live", {"seconds": {"max": limit / 1000}})
    return DraftCheck("replay", {"cost": {"max": limit}})


# Converters by type. Those in `_NEGATING` convert the `not-` form, too; that of a regular expression is negated.
_CONVERTERS: dict[str, Callable[[_Assertion], DraftCheck]] = {
    "equals": _convert_equals,
    "contains": _convert_contains,
    "contains-all": _convert_contains_all,
    "contains-any": _convert_contains_any,
    "icontains": lambda assertion: _match(f"(?i){escape_pattern(_to_text(assertion.value))}"),
    "icontains-any": lambda assertion: _match(f"(?i){_join(_to_texts(assertion.value))}"),
    "icontains-all": _convert_icontains_all,
    "starts-with": lambda assertion: _match(rf"\A{escape_pattern(_to_text(assertion.value))}"),
    "regex": _convert_regex,
    "cost": _convert_limit,
    "latency": _convert_limit,
}
_NEGATING = frozenset({"equals", "contains", "contains-all", "contains-any", "icontains-all"})


def _match(pattern: str) -> DraftCheck:
    return DraftCheck("replay", {"regex": pattern})


def _join(texts: list[str]) -> str:
    return "|".join(map(escape_pattern, texts))


def _look_for_all(texts: list[str]) -> str:
    return "".join(rf"(?=[\s\S]*{escape_pattern(text)})" for text in texts)


def _negate(pattern: str, *, anywhere: str = r"[\s\S]*") -> str:
    """Return a pattern that matches if another one does not. Flags stay at the start."""
    flags, rest = ("(?i)", pattern[4:]) if pattern.startswith("(?i)") else ("", pattern)
    if re.match(r"\(\?[a-zA-Z]+\)", rest):
        raise Unsupported("a negated regular expression cannot have flags", "Write it without flags.")
    return rf"{flags}\A(?!{anywhere}(?:{rest}))"


def _to_text(value: object) -> str:
    if value is None or isinstance(value, dict | list):
        raise Unsupported("the assertion has no text to compare with")
    return str(value).lower() if isinstance(value, bool) else str(value)


def _to_texts(value: object) -> list[str]:
    texts = [_to_text(entry) for entry in _to_list(value)]
    if not texts:
        raise Unsupported("the assertion has no texts to look for")
    return texts


def _to_list(value: object) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]


def _fill(value: Any, values: Mapping[str, object]) -> Any:
    """Return a value with its variables replaced. A file that it names is not read."""
    if isinstance(value, list):
        return [_fill(entry, values) for entry in value]
    if not isinstance(value, str):
        return value
    if value.startswith("file://"):
        raise Unsupported(f"the assertion names a file, {value}", "Copy its content into the test file.")
    if "{{" not in value and "{%" not in value:
        return value
    filled = substitute(value, values)
    if filled is None:
        raise Unsupported("the assertion has a template that is more than a variable of the test")
    return filled
