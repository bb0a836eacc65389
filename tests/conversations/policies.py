"""Random tools with defaults, guardrails, bindings and approval policies, and what a person sees of their calls."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jsonschema_rs
from hypothesis import strategies as st

from prompty import Guardrails, PromptAgent, rewrite
from prompty.events import GatedCall
from prompty.safety.redaction import MASK
from prompty.testing import call
from prompty.tools.function import Handler, ToolOptions, get_signature

Json = dict[str, Any]
NAMES = ("amount", "to", "at", "flag", "more")
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "integer": st.integers(-1000, 1000),
    "float": st.floats(-1000, 1000, allow_nan=False),
    "string": st.sampled_from(["", "a", "evil", MASK, "漢", "\u202e", "1"]),
    "boolean": st.booleans(),
    "array": st.lists(st.integers(0, 3), max_size=2),
    "object": st.dictionaries(st.sampled_from("ab"), st.lists(st.integers(0, 3), max_size=2), max_size=2),
}
HINTS: dict[str, Any] = {
    "integer": int,
    "float": float,
    "string": str,
    "boolean": bool,
    "array": list[int],
    "object": dict[str, Any],
}
SCHEMAS: dict[str, st.SearchStrategy[Json]] = {
    "integer": st.builds(lambda limit: {"minimum": limit}, st.integers(-900, 900)),
    "float": st.builds(lambda limit: {"maximum": limit}, st.integers(-900, 900)),
    "string": st.sampled_from([{"const": "evil"}, {"minLength": 1}, {}]),
    "boolean": st.sampled_from([{"const": True}, {"const": False}]),
    "array": st.sampled_from([{"minItems": 1}, {"maxItems": 1}]),
    "object": st.sampled_from([{"required": ["a"]}, {"type": "object"}]),
}


@dataclass(frozen=True)
class Parameter:
    """A parameter, its defaults in the file and in the function, and the value that the host binds it to."""

    name: str
    kind: str
    required: bool
    in_file: list[Any]  # at most one default
    in_function: list[Any]
    bound: list[Any]


@dataclass(frozen=True)
class Scene:
    """A tool, the calls of one answer, and what the host does about them. All of it is JSON, for another process."""

    parameters: list[Parameter]
    calls: list[Json]
    file_policy: Any
    host_policy: Any
    rewrites: list[Json | None]  # what the guardrail makes of the calls in turn; None lets them pass
    guarded: bool

    def agent(self) -> PromptAgent:
        return self._agent({"id": "m", "provider": "scripted"}, {one.name: one.bound[0] for one in self._bound()})

    def durable_agent(self) -> PromptAgent:
        """The agent with its script, and bound to inputs: a durable run stores no values of a binding."""
        arguments = [{"call": "act", "arguments": given} for given in self.calls]
        model = {
            "id": "m",
            "provider": "scripted",
            "script": [arguments, "Done."],
        }
        inputs = {f"of_{one.name}": {"kind": one.kind} for one in self._bound()}
        return self._agent(model, {one.name: {"input": f"of_{one.name}"} for one in self._bound()}, inputs=inputs)

    def inputs(self) -> Json:
        return {f"of_{one.name}": one.bound[0] for one in self._bound()}

    def _bound(self) -> list[Parameter]:
        return [one for one in self.parameters if one.bound]

    def _agent(self, model: Json, bindings: Json, **parts: Any) -> PromptAgent:
        parameters = [
            {"name": one.name, "kind": one.kind, "required": one.required}
            | ({"default": one.in_file[0]} if one.in_file else {})
            for one in self.parameters
        ]
        tool = {"name": "act", "kind": "function", "parameters": parameters, "approvalMode": self.file_policy}
        tool["bindings"] = bindings
        return PromptAgent.model_validate({"model": model, "instructions": "user:\nHi", "tools": [tool], **parts})

    def answer(self) -> list[Any]:
        return [call("act", **arguments) for arguments in self.calls]

    def tool(self, ran: list[Json]) -> Handler:
        """The function, with these parameters, which notes what it gets."""
        return make_tool(self.parameters, ran)

    def guardrails(self) -> Guardrails | None:
        """A guardrail that rewrites; what it does depends on the arguments alone, so that any process does the same."""
        if not self.guarded:
            return None

        def guard(one: GatedCall) -> object:
            number = len(json.dumps(one.arguments, sort_keys=True))
            rewritten = self.rewrites[number % len(self.rewrites)] if self.rewrites else None
            return True if rewritten is None else rewrite(dict(rewritten))

        return Guardrails(tool=guard)


def make_tool(parameters: list[Parameter], ran: list[Json]) -> Handler:
    """Return a function of these parameters that notes its arguments in `ran`."""
    names = [one for one in parameters if not one.in_function] + [one for one in parameters if one.in_function]
    signature = ", ".join(one.name + (f"=_defaults[{one.name!r}]" if one.in_function else "") for one in names)
    note = ", ".join(f"{one.name!r}: {one.name}" for one in names)
    space: Json = {"_ran": ran, "_defaults": {one.name: one.in_function[0] for one in names if one.in_function}}
    exec(f"def act({signature}):\n    _ran.append({{{note}}})\n    return 'done'", space)  # noqa: S102  our own text
    function: Callable[..., object] = space["act"]
    function.__annotations__ = {one.name: HINTS[one.kind] for one in names}
    return Handler(function, "act", ToolOptions(), get_signature(function))


@st.composite
def parameters(draw: st.DrawFn) -> list[Parameter]:
    found = []
    for name in draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=4, unique=True)):
        kind = draw(st.sampled_from(sorted(VALUES)))
        values = VALUES[kind]
        one_in_three = st.sampled_from([0, 0, 1])
        default = st.lists(values, min_size=1, max_size=1)
        found.append(
            Parameter(
                name=name,
                kind=kind,
                required=draw(st.booleans()),
                in_file=draw(default) if draw(one_in_three) else [],
                in_function=draw(default) if draw(st.booleans()) else [],
                bound=draw(default) if draw(one_in_three) else [],
            )
        )
    return found


@st.composite
def policies(draw: st.DrawFn, found: list[Parameter]) -> Any:
    free = [one for one in found if not one.bound]
    if not free:
        return draw(st.sampled_from([None, "never", "always"]))
    chosen = draw(st.lists(st.sampled_from(free), min_size=1, max_size=2, unique_by=lambda one: one.name))
    condition = {"when": {one.name: draw(SCHEMAS[one.kind]) for one in chosen}}
    return draw(st.sampled_from([condition, condition, condition, None, "never", "always"]))


@st.composite
def arguments(draw: st.DrawFn, found: list[Parameter]) -> Json:
    """Arguments of the model, which leaves some out and tries to set what is bound."""
    return {one.name: draw(VALUES[one.kind]) for one in found if draw(st.sampled_from([True, True, False]))}


@st.composite
def scenes(draw: st.DrawFn) -> Scene:
    found = draw(parameters())
    host = draw(policies(found))
    return Scene(
        parameters=found,
        calls=draw(st.lists(arguments(found), min_size=1, max_size=3)),
        file_policy=draw(policies(found)),
        host_policy={"act": host} if draw(st.booleans()) else host,
        rewrites=draw(st.lists(st.none() | arguments(found), max_size=3)),
        guarded=draw(st.booleans()),
    )


@dataclass
class Person:
    """Sees calls, and says yes to every second one by what it sees."""

    seen: list[GatedCall] = field(default_factory=list)

    def decide(self, calls: list[GatedCall]) -> list[bool]:
        self.seen += calls
        return [self.says(one) for one in calls]

    @staticmethod
    def says(one: GatedCall) -> bool:
        return len(one.key) % 2 == 0 or int(one.key.rpartition(":")[2]) != 1


def unmask(scene: Scene, one: GatedCall) -> Json:
    """What a person knows to run: what was shown, and the values of the host where it was told that they are."""
    bound = {one.name: one.bound[0] for one in scene.parameters if one.bound}
    assert set(one.bound) == set(bound)
    assert all(one.arguments[name] == MASK for name in bound)
    return {**one.arguments, **bound}


def as_text(calls: list[Json]) -> list[str]:
    """Calls as text, which tells 1 from 1.0 and from True; in no order, because they run beside each other."""
    return sorted(json.dumps(_converted(one), sort_keys=True) for one in calls)


def _converted(value: Any) -> Any:
    """Numbers as the function gets them: a signature that says float makes a float of an integer."""
    if isinstance(value, dict):
        return {name: _converted(entry) for name, entry in value.items()}
    if isinstance(value, list):
        return [_converted(entry) for entry in value]
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


def expected(scene: Scene, approved: list[GatedCall]) -> list[str]:
    """What must have run after a yes to these calls: all but those that the function cannot be called with."""
    needed = {one.name for one in scene.parameters if not one.in_function}
    return as_text([found for one in approved if needed <= (found := unmask(scene, one)).keys()])


def asks(scene: Scene, arguments: Json) -> bool:
    """Whether a person must be asked about a call that runs with these arguments, worked out again."""
    host = scene.host_policy.get("act") if isinstance(scene.host_policy, dict) else scene.host_policy
    if isinstance(scene.host_policy, dict) and "when" in scene.host_policy:
        host = scene.host_policy
    return any(_policy_asks(policy, arguments) for policy in (scene.file_policy, host))


def _policy_asks(policy: Any, arguments: Json) -> bool:
    if policy in (None, "never", "always"):
        return bool(policy == "always")
    return all(jsonschema_rs.is_valid(schema, arguments[name]) for name, schema in policy["when"].items())
