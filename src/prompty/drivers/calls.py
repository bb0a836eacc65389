"""One call to a model, in synchronous code: from messages to the events of its answer."""

from collections.abc import Callable, Generator, Sequence
from typing import TypeVar

from prompty.concurrency import in_event_loop
from prompty.drivers.models import model_of
from prompty.drivers.sync import SyncDriver
from prompty.drivers.watch import watched
from prompty.errors import Refused
from prompty.loop.retry import call_model
from prompty.model.agent import PromptAgent
from prompty.model.event import Event
from prompty.model.reply import Reply
from prompty.pipeline.process import result_of
from prompty.pipeline.request import has_kinds, offered_functions, request_for
from prompty.tracing.spans import Span, current_span
from prompty.wire.structured import cast

T = TypeVar("T")


def reply_events(
    agent: PromptAgent,
    messages: Sequence[object],
    *,
    stream: bool,
    timeout: float | None,
    max_retries: int,
    span: Span | None = None,
) -> Generator[Event, None, Reply]:
    """What happens while a model answers; the generator returns the reply. It is part of a span, or of what is going on
    here."""
    model = model_of(agent)
    functions = in_event_loop(offered_functions(agent)).result() if has_kinds(agent) else None
    request = request_for(agent, messages, model.api, functions=functions, stream=stream, timeout=timeout)
    watch = watched(span or current_span(), [agent], [model])
    return SyncDriver(models=[model], watch=watch).run(call_model(request, max_retries))


def last_of(events: Generator[Event, None, T]) -> T:
    """What it comes to, with nobody listening."""
    while True:
        try:
            next(events)
        except StopIteration as end:
            result: T = end.value
            return result


def finisher(agent: PromptAgent, output_type: type[T] | None) -> Callable[[Reply], object]:
    """What makes a result of a reply, of the type the caller asked for."""

    def finish(reply: Reply) -> object:
        if output_type is None:
            return result_of(agent, reply)
        if reply.refusal:
            raise Refused(reply.refusal)
        return cast(result_of(agent, reply), output_type)

    return finish
