"""The result of a turn."""

from collections.abc import Callable
from typing import Any

from prompty.drivers.calls import finisher
from prompty.errors import ResultError
from prompty.model.agent import PromptAgent
from prompty.model.reply import Reply
from prompty.tools.arguments import misfits
from prompty.wire.structured import output_schema


def turn_finisher(agent: PromptAgent, output_type: type[Any] | None) -> Callable[[Reply], object]:
    """What makes a result of a reply. A turn can ask again, so an answer that is not what the file's outputs say is an
    error here."""
    finish = finisher(agent, output_type)
    schema = output_schema(agent) if output_type is None else None
    if schema is None:
        return finish

    def checked(reply: Reply) -> object:
        result = finish(reply)
        value = dict(result) if isinstance(result, dict) else result
        problems = [] if reply.refusal else misfits(value, schema)
        if problems:
            raise ResultError("value of the declared outputs", ValueError("; ".join(problems)))
        return result

    return checked
