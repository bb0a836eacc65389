"""One row, called: a turn where the prompt has tools, one pass otherwise; and what is heard of it on the way."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Any

from prompty.api_turn_async import turn_async
from prompty.batch.records import RowUsage
from prompty.drivers.calls import finisher
from prompty.drivers.calls_async import reply_events_async
from prompty.drivers.decoding import Outcome
from prompty.drivers.spanning import spanned_async
from prompty.errors import ModelError
from prompty.loop.budget import total
from prompty.model.agent import PromptAgent
from prompty.model.event import Done, Event, ModelReply, Retry
from prompty.model.reply import Reply
from prompty.pipeline.prepare import prepare
from prompty.pipeline.telemetry import begin_call, show_call

MAX_RETRIES = 8  # a row has time: a provider that is busy now will not be in a minute
Price = Callable[[Reply], Decimal | None]
Refusal = Callable[[Retry], None]


class Call:
    """The call of one row. `used` is complete also when the call fails."""

    def __init__(self, agent: PromptAgent, tools: list[object], price: Price, refused: Refusal) -> None:
        self._agent, self._tools, self._price, self._refused = agent, tools, price, refused
        self.used = RowUsage(attempts=0)

    async def result(self, inputs: Mapping[str, object]) -> Any:
        """The result, or the turn itself where it waits for a person."""
        if self._agent.tools or self._tools:
            return await turn_async(
                self._agent, inputs, tools=self._tools, on_event=self._hear, max_retries=MAX_RETRIES
            )
        return await self._invoked(inputs)

    async def _invoked(self, inputs: Mapping[str, object]) -> Any:
        agent, span = self._agent, begin_call("invoke", self._agent)
        with span.within("on failure"):
            show_call(span, agent, inputs)
            calling = reply_events_async(
                agent, prepare(agent, inputs), stream=False, timeout=None, max_retries=MAX_RETRIES, span=span
            )
            events, result = spanned_async(span, calling, finisher(agent, None))
        reply: Reply | None = None
        async for event in events:
            if isinstance(event, Outcome):
                reply = event.value
            else:
                self._hear(event)
        if reply is None:
            raise ModelError("the call ended without a reply")
        return result(reply)

    def _hear(self, event: Event) -> None:
        used = self.used
        match event:
            case Retry():
                self.used = replace(used, attempts=(used.attempts or 0) + 1)
                self._refused(event)
            case ModelReply(reply):
                cost, known = self._price(reply), used.cost
                self.used = RowUsage(
                    usage=total(used.usage, reply.usage),
                    cost=known if cost is None else cost + (known or 0),
                    model=reply.model or self._agent.model.id,
                    attempts=(used.attempts or 0) + 1,
                )
            case Done():  # counts the prompts that ran as its tools, too
                cost = used.cost if event.cost is None else event.cost
                self.used = replace(used, usage=event.usage, cost=cost)
