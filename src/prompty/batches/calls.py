"""Model call of one row: a turn if the prompt has tools, otherwise a single call."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Any

from prompty.api_async import invoke_async, turn_async
from prompty.batches.job import BatchJob
from prompty.batches.records import RowUsage
from prompty.model.event import Done, Event, ModelReply, Retry

MAX_RETRIES = 8  # a row can wait: an overloaded provider recovers within minutes
OnRetry = Callable[[Retry], None]


class Call:
    """The call of one row. `used` is complete even if the call fails."""

    def __init__(self, job: BatchJob, on_retry: OnRetry) -> None:
        self._agent, self._tools, self._price, self._on_retry = job.agent, job.tools, job.price, on_retry
        self._options: dict[str, Any] = {
            "on_event": self._on_event,
            "max_retries": MAX_RETRIES,
            "extra_inputs": "ignore",
            "outputs_mode": job.outputs_mode,
            "provider_tools": job.provider_tools,
        }
        self.used: RowUsage = RowUsage(attempts=0)

    async def result(self, inputs: Mapping[str, object]) -> Any:
        """Return the result, or a `Paused` value if the turn needs approval."""
        if self._agent.tools or self._tools:
            return await turn_async(self._agent, inputs, tools=self._tools, **self._options)
        return await invoke_async(self._agent, inputs, **self._options)

    def _on_event(self, event: Event) -> None:
        used = self.used
        match event:
            case Retry():
                self.used = replace(used, attempts=(used.attempts or 0) + 1)
                self._on_retry(event)
            case ModelReply(reply):
                cost, known = self._price(reply), used.cost if used.model else Decimal()
                self.used = RowUsage(
                    usage=used.usage + reply.usage,
                    cost=None if cost is None or known is None else cost + known,
                    model=reply.model or self._agent.model.id,
                    attempts=(used.attempts or 0) + 1,
                )
            case Done():  # its usage includes prompts that ran as tools
                is_whole = event.usage == used.usage
                cost = used.cost if event.cost is None and is_whole else event.cost
                self.used = replace(
                    used,
                    usage=event.usage,
                    cost=cost,
                    citations=event.citations,
                    provider_calls=event.provider_calls,
                )
