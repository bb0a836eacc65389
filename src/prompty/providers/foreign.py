"""Providers of one's own, the long way (§7.8): an executor that calls a model and a processor that reads its answer.

`Provider` is richer (streams, retries, offline requests); this pair is what the documents describe.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from prompty.model.agent import PromptAgent
from prompty.model.message import Message


class ExecutorProtocol(Protocol):
    """Sends messages to a model and gives back its raw reply."""

    def execute(self, agent: PromptAgent, messages: Sequence[Message], /) -> object: ...
    async def execute_async(self, agent: PromptAgent, messages: Sequence[Message], /) -> object: ...


class ProcessorProtocol(Protocol):
    """Makes a result of a raw reply."""

    def process(self, agent: PromptAgent, response: object, /) -> object: ...
    async def process_async(self, agent: PromptAgent, response: object, /) -> object: ...


class Pair(NamedTuple):
    executor: ExecutorProtocol
    processor: ProcessorProtocol
