"""The same answers as each of the three wire formats writes them, whole and as the events of a stream."""

from dataclasses import dataclass
from typing import Any, ClassVar

from prompty import PromptAgent, Usage
from prompty.model.message import Json
from tests.loopback import Server, event

KEY = "a-key-of-no-known-shape"
USAGE = Usage(input_tokens=3, output_tokens=5)
TOOL = {"name": "look", "kind": "function", "parameters": [{"name": "at", "kind": "string"}]}


@dataclass(frozen=True)
class Wire:
    """How one API says things. `said` is a stream up to its last word, `ended` what follows."""

    name: ClassVar[str]
    provider: ClassVar[str] = "openai"
    api_type: ClassVar[str]
    path: ClassVar[str]
    base: ClassVar[str] = "/v1"

    def agent(self, place: Server | str, **parts: Any) -> PromptAgent:
        """A prompt that leads to a server."""
        url = place if isinstance(place, str) else place.url
        connection = {"kind": "key", "endpoint": url + self.base, "apiKey": KEY}
        model = {"id": "m", "provider": self.provider, "apiType": self.api_type, "connection": connection}
        return PromptAgent.model_validate({"model": model, "instructions": "user:\nHi", **parts})

    def whole(self, text: str, finish: str = "stop", **more: Any) -> Json:
        raise NotImplementedError

    def said(self, *words: str) -> list[Any]:
        raise NotImplementedError

    def ended(self, *words: str, finish: str = "stop") -> list[Any]:
        raise NotImplementedError

    def error_event(self, message: str) -> Json:
        raise NotImplementedError

    def half_call(self) -> Json:
        """A whole answer whose call was cut off by the length limit."""
        raise NotImplementedError

    def half_call_stream(self) -> list[Any]:
        """The same as a stream."""
        raise NotImplementedError

    def stream(self, *words: str, finish: str = "stop") -> list[bytes]:
        """The events of a whole stream, as bytes."""
        return [event(item) for item in (*self.said(*words), *self.ended(*words, finish=finish))]


class Chat(Wire):
    name = "chat"
    api_type = "chat"
    path = "/v1/chat/completions"
    usage: ClassVar[Json] = {"prompt_tokens": 3, "completion_tokens": 5}

    def whole(self, text: str, finish: str = "stop", **more: Any) -> Json:
        message = {"role": "assistant", "content": text, **more}
        choice = {"index": 0, "message": message, "finish_reason": finish}
        return {"id": "a", "model": "m", "choices": [choice], "usage": self.usage}

    def chunk(self, delta: Json, finish: str | None = None) -> Json:
        return {"id": "a", "model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}

    def said(self, *words: str) -> list[Any]:
        return [self.chunk({"role": "assistant", "content": ""}), *(self.chunk({"content": word}) for word in words)]

    def ended(self, *words: str, finish: str = "stop") -> list[Any]:
        return [self.chunk({}, finish), {"id": "a", "model": "m", "choices": [], "usage": self.usage}, "[DONE]"]

    def error_event(self, message: str) -> Json:
        return {"error": {"message": message, "code": "server_error"}}

    def call(self, **parts: Any) -> Json:
        return {"type": "function", **parts}

    def half_call(self) -> Json:
        call = self.call(id="c", function={"name": "look", "arguments": '{"at": "the'})
        return self.whole("Well", "length", tool_calls=[call])

    def half_call_stream(self) -> list[Any]:
        opened = self.call(index=0, id="c", function={"name": "look", "arguments": '{"at"'})
        more = self.call(index=0, function={"arguments": ': "the'})
        pieces = [self.chunk({"tool_calls": [piece]}) for piece in (opened, more)]
        return [*self.said("Well"), *pieces, *self.ended(finish="length")]


class Responses(Wire):
    name = "responses"
    api_type = "responses"
    path = "/v1/responses"
    usage: ClassVar[Json] = {"input_tokens": 3, "output_tokens": 5}

    def message(self, text: str) -> Json:
        return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}

    def response(self, status: str, *output: Json, finish: str = "stop") -> Json:
        details = {"reason": "max_output_tokens" if finish == "length" else finish} if status == "incomplete" else None
        head: Json = {"id": "a", "model": "m", "status": status, "incomplete_details": details}
        return {**head, "output": list(output), "usage": self.usage}

    def whole(self, text: str, finish: str = "stop", **more: Any) -> Json:
        status = "completed" if finish == "stop" else "incomplete"
        return {**self.response(status, self.message(text), finish=finish), **more}

    def said(self, *words: str) -> list[Any]:
        created = {"type": "response.created", "response": {"id": "a", "model": "m", "status": "in_progress"}}
        added = {"type": "response.output_item.added", "output_index": 0, "item": self.message("")}
        deltas = [{"type": "response.output_text.delta", "output_index": 0, "delta": word} for word in words]
        return [created, added, *deltas]

    def ended(self, *words: str, finish: str = "stop") -> list[Any]:
        done = {"type": "response.output_item.done", "output_index": 0, "item": self.message("".join(words))}
        whole = self.whole("".join(words), finish)
        return [done, {"type": f"response.{whole['status']}", "response": whole}]

    def error_event(self, message: str) -> Json:
        return {"type": "error", "code": "server_error", "message": message}

    def half_call(self) -> Json:
        return self.response("incomplete", self.message("Well"), self._call("incomplete"), finish="length")

    def _call(self, status: str) -> Json:
        text = '{"at": "the' if status == "incomplete" else ""
        return {"type": "function_call", "call_id": "c", "name": "look", "arguments": text, "status": status}

    def half_call_stream(self) -> list[Any]:
        message = self.ended("Well")[0]
        added = {"type": "response.output_item.added", "output_index": 1, "item": self._call("in_progress")}
        more = {"type": "response.function_call_arguments.delta", "output_index": 1, "delta": '{"at": "the'}
        return [*self.said("Well"), message, added, more, {"type": "response.incomplete", "response": self.half_call()}]


class Messages(Wire):
    name = "anthropic"
    provider = "anthropic"
    api_type = "chat"
    path = "/v1/messages"
    base = ""
    reasons: ClassVar = {"stop": "end_turn", "length": "max_tokens", "content_filter": "refusal"}
    usage: ClassVar[Json] = {"input_tokens": 3, "output_tokens": 5}

    def message(self, *content: Json, finish: str | None) -> Json:
        head: Json = {"id": "a", "type": "message", "role": "assistant", "model": "m"}
        reason = self.reasons[finish] if finish else None
        return {**head, "content": list(content), "stop_reason": reason, "usage": self.usage}

    def whole(self, text: str, finish: str = "stop", **more: Any) -> Json:
        return {**self.message({"type": "text", "text": text}, finish=finish), **more}

    def said(self, *words: str) -> list[Any]:
        started = {"type": "message_start", "message": self.message(finish=None)}
        block = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
        deltas = [self._delta(0, {"type": "text_delta", "text": word}) for word in words]
        return [started, block, {"type": "ping"}, *deltas]

    def _delta(self, index: int, delta: Json) -> Json:
        return {"type": "content_block_delta", "index": index, "delta": delta}

    def ended(self, *words: str, finish: str = "stop") -> list[Any]:
        return [{"type": "content_block_stop", "index": 0}, *self._stop(finish)]

    def _stop(self, finish: str) -> list[Json]:
        delta = {"stop_reason": self.reasons[finish]}
        return [{"type": "message_delta", "delta": delta, "usage": {"output_tokens": 5}}, {"type": "message_stop"}]

    def error_event(self, message: str) -> Json:
        return {"type": "error", "error": {"type": "overloaded_error", "message": message}}

    def half_call(self) -> Json:
        call: Json = {"type": "tool_use", "id": "c", "name": "look", "input": {}}
        return self.message({"type": "text", "text": "Well"}, call, finish="length")

    def half_call_stream(self) -> list[Any]:
        call = {"type": "tool_use", "id": "c", "name": "look", "input": {}}
        begun = {"type": "content_block_start", "index": 1, "content_block": call}
        more = self._delta(1, {"type": "input_json_delta", "partial_json": '{"at": "the'})
        closed = {"type": "content_block_stop", "index": 0}
        return [*self.said("Well"), closed, begun, more, *self._stop("length")]


WIRES = (Chat(), Responses(), Messages())
