"""What providers answer in an agent's turn: two calls first, then words; whole and as streams, with all figures."""

import json
from collections.abc import Sequence
from typing import Any, ClassVar

from prompty.model.message import Json
from tests.loopback import Pause, Reply, event, json_reply, stream

Calls = Sequence[tuple[str, str, Json]]
CALLS: Calls = (("call_w", "weather", {"city": "Lisbon"}), ("call_f", "forecast", {"city": "Porto"}))
WORDS = ("It is ", "sunny.")
ANSWERED_BY = "model-of-2026-11"
FIRST_WORD_AFTER = 0.03


class Wire:
    """One API: what it is called, what it answers, and the figures of its two answers by the names of telemetry."""

    name: ClassVar[str]
    provider: ClassVar[str] = "openai"
    api_type: ClassVar[str] = "chat"
    base: ClassVar[str] = "/v1"
    figures: ClassVar[tuple[dict[str, int], dict[str, int]]]

    def __init__(self, calls: Calls = CALLS) -> None:
        self.calls = calls

    def replies(self, *, streamed: bool) -> Sequence[Reply]:
        """Both answers, in order."""
        if not streamed:
            return [json_reply(self.asking()), json_reply(self.saying())]
        return [stream(Pause(FIRST_WORD_AFTER), *map(event, events)) for events in (self.asked(), self.said())]

    def asking(self) -> Json:
        raise NotImplementedError

    def saying(self) -> Json:
        raise NotImplementedError

    def asked(self) -> list[Any]:
        """The events of the first answer."""
        raise NotImplementedError

    def said(self) -> list[Any]:
        """The events of the second."""
        raise NotImplementedError


class Chat(Wire):
    name = "chat"
    figures = (
        {"input_tokens": 20, "output_tokens": 7, "cache_read.input_tokens": 4, "reasoning.output_tokens": 2},
        {"input_tokens": 31, "output_tokens": 5, "cache_read.input_tokens": 16, "reasoning.output_tokens": 0},
    )

    def _usage(self, number: int) -> Json:
        given, made, cached, thought = self.figures[number].values()
        details = {"prompt_tokens_details": {"cached_tokens": cached}}
        thoughts = {"completion_tokens_details": {"reasoning_tokens": thought}}
        return {"prompt_tokens": given, "completion_tokens": made, **details, **thoughts}

    def _calls(self) -> list[Any]:
        return [
            {"id": id, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
            for id, name, arguments in self.calls
        ]

    def _head(self, number: int) -> Json:
        return {"id": f"reply_{number}", "model": ANSWERED_BY}

    def _whole(self, number: int, finish: str, **message: Any) -> Json:
        choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}
        return {**self._head(number), "choices": [choice], "usage": self._usage(number)}

    def asking(self) -> Json:
        return self._whole(0, "tool_calls", content=None, tool_calls=self._calls())

    def saying(self) -> Json:
        return self._whole(1, "stop", content="".join(WORDS))

    def _chunks(self, number: int, deltas: list[Any], finish: str) -> list[Any]:
        made = [{"index": 0, "delta": delta} for delta in deltas]
        choices = [*made, {"index": 0, "delta": {}, "finish_reason": finish}]
        head = self._head(number)
        chunks = [{**head, "choices": [choice]} for choice in choices]
        return [*chunks, {**head, "choices": [], "usage": self._usage(number)}, "[DONE]"]

    def asked(self) -> list[Any]:
        deltas = [{"tool_calls": [{"index": index, **call}]} for index, call in enumerate(self._calls())]
        return self._chunks(0, deltas, "tool_calls")

    def said(self) -> list[Any]:
        return self._chunks(1, [{"content": word} for word in WORDS], "stop")


class Responses(Wire):
    name = "responses"
    api_type = "responses"
    figures = (
        {
            "input_tokens": 21,
            "output_tokens": 8,
            "cache_read.input_tokens": 5,
            "cache_creation.input_tokens": 3,
            "reasoning.output_tokens": 2,
        },
        {
            "input_tokens": 33,
            "output_tokens": 6,
            "cache_read.input_tokens": 17,
            "cache_creation.input_tokens": 0,
            "reasoning.output_tokens": 1,
        },
    )

    def _whole(self, number: int, *output: Any) -> Json:
        given, made, cached, written, thought = self.figures[number].values()
        usage = {
            "input_tokens": given,
            "input_tokens_details": {"cached_tokens": cached, "cache_write_tokens": written},
            "output_tokens": made,
            "output_tokens_details": {"reasoning_tokens": thought},
        }
        head = {"id": f"reply_{number}", "model": ANSWERED_BY, "status": "completed"}
        return {**head, "output": list(output), "usage": usage}

    def _calls(self) -> list[Any]:
        return [
            {"type": "function_call", "call_id": id, "name": name, "arguments": json.dumps(arguments)}
            for id, name, arguments in self.calls
        ]

    def _message(self, text: str) -> Any:
        return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}

    def asking(self) -> Json:
        return self._whole(0, *self._calls())

    def saying(self) -> Json:
        return self._whole(1, self._message("".join(WORDS)))

    def _events(self, whole: Json, middle: list[Any]) -> list[Any]:
        begun = {"id": whole["id"], "model": ANSWERED_BY, "status": "in_progress"}
        created = {"type": "response.created", "response": begun}
        return [created, *middle, {"type": "response.completed", "response": whole}]

    def asked(self) -> list[Any]:
        steps = ("added", "done")
        items = [
            {"type": f"response.output_item.{step}", "output_index": index, "item": call}
            for index, call in enumerate(self._calls())
            for step in steps
        ]
        return self._events(self.asking(), items)

    def said(self) -> list[Any]:
        deltas = [{"type": "response.output_text.delta", "output_index": 0, "delta": word} for word in WORDS]
        return self._events(self.saying(), deltas)


class Messages(Wire):
    name = "anthropic"
    provider = "anthropic"
    base = ""
    # This API counts what came from its cache apart: 20 and 30 tokens are counted by it as new.
    figures = (
        {
            "input_tokens": 20 + 4 + 3,
            "output_tokens": 7,
            "cache_read.input_tokens": 4,
            "cache_creation.input_tokens": 3,
        },
        {
            "input_tokens": 30 + 6 + 0,
            "output_tokens": 5,
            "cache_read.input_tokens": 6,
            "cache_creation.input_tokens": 0,
        },
    )

    def _usage(self, number: int) -> Json:
        _, made, cached, written = self.figures[number].values()
        apart = {"cache_read_input_tokens": cached, "cache_creation_input_tokens": written}
        return {"input_tokens": (20, 30)[number], "output_tokens": made, **apart}

    def _whole(self, number: int, stop_reason: str, *content: Any) -> Json:
        head = {"id": f"reply_{number}", "type": "message", "role": "assistant", "model": ANSWERED_BY}
        return {**head, "content": list(content), "stop_reason": stop_reason, "usage": self._usage(number)}

    def asking(self) -> Json:
        calls = [{"type": "tool_use", "id": id, "name": name, "input": given} for id, name, given in self.calls]
        return self._whole(0, "tool_use", *calls)

    def saying(self) -> Json:
        return self._whole(1, "end_turn", {"type": "text", "text": "".join(WORDS)})

    def _events(self, number: int, blocks: list[Any], stop_reason: str) -> list[Any]:
        used = self._usage(number)
        start = {"type": "message_start", "message": {**self._whole(number, ""), "stop_reason": None}}
        delta = {"type": "message_delta", "delta": {"stop_reason": stop_reason}, "usage": used}
        return [start, *blocks, delta, {"type": "message_stop"}]

    def _block(self, index: int, block: Json, deltas: list[Any]) -> list[Any]:
        begun = {"type": "content_block_start", "index": index, "content_block": block}
        made = [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        return [begun, *made, {"type": "content_block_stop", "index": index}]

    def asked(self) -> list[Any]:
        blocks = []
        for index, (id, name, given) in enumerate(self.calls):
            written = {"type": "input_json_delta", "partial_json": json.dumps(given)}
            blocks += self._block(index, {"type": "tool_use", "id": id, "name": name, "input": {}}, [written])
        return self._events(0, blocks, "tool_use")

    def said(self) -> list[Any]:
        deltas = [{"type": "text_delta", "text": word} for word in WORDS]
        return self._events(1, self._block(0, {"type": "text", "text": ""}, deltas), "end_turn")


CHAT, RESPONSES, MESSAGES = Chat(), Responses(), Messages()
EMBEDDING: Json = {
    "data": [{"index": 0, "embedding": [0.5, 0.25]}],
    "model": ANSWERED_BY,
    "usage": {"prompt_tokens": 6},
}
IMAGE: Json = {
    "data": [{"url": "https://images.invalid/1.png"}],
    "usage": {"input_tokens": 9, "output_tokens": 1056},
}
