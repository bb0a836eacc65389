"""Whether a person is asked before a call runs: what the file says (`approvalMode`) and what the host says.

Each of them is `never`, `always`, or `{when: {amount: {minimum: 100}}}`: ask when the arguments of these names fit
these JSON Schemas. The stricter one wins, and what is not understood means always.
"""

from collections.abc import Iterable

from prompty.model.message import Json
from prompty.tools.arguments import validator_of


def needs_approval(policies: Iterable[object], arguments: Json) -> bool:
    """Whether one of several policies wants a person to be asked about a call with these arguments."""
    return any(_asks(policy, arguments) for policy in policies)


def policy_in_words(policy: object) -> str:
    """What a policy means, for people."""
    match policy:
        case None | "never":
            return "never asks"
        case {"when": dict(conditions), **others} if not others:
            return f"asks for some values of {', '.join(conditions)}"
    return "always asks"


def _asks(policy: object, arguments: Json) -> bool:
    match policy:
        case None | "never":
            return False
        case {"when": dict(conditions), **others} if not others:
            return _fits(conditions, arguments)
    return True


def _fits(conditions: Json, arguments: Json) -> bool:
    try:
        validator = validator_of({"type": "object", "properties": conditions, "required": list(conditions)})
    except ValueError:
        return True  # not a schema: nobody can have meant that nobody is asked
    return validator.is_valid(arguments)
