"""Answers that do not have the shape of the declared outputs, as the bytes of four providers."""

from dataclasses import dataclass
from typing import Any

from prompty.model.message import Json
from tests.drivers.wires import Chat, Messages, Responses, Wire
from tests.loopback import Reply, event, json_reply, stream

OUTPUTS: Json = {"name": {"kind": "string"}, "age": {"kind": "integer"}}
ADA: dict[str, object] = {"name": "Ada", "age": 36}
ADA_TEXT = '{"name": "Ada", "age": 36}'


class Azure(Chat):
    """A deployment on Azure, which speaks chat."""

    name = "azure"
    provider = "azure"
    base = ""


TARGETS = (Chat(), Responses(), Messages(), Azure())


@dataclass(frozen=True)
class Unfit:
    """An answer by the words of its text, and the reason for which it does not fit."""

    reason: str
    words: tuple[str, ...] = ()
    finish: str = "stop"

    @property
    def text(self) -> str:
        return "".join(self.words)

    def encode(self, wire: Wire, *, streamed: bool) -> Reply:
        """Return the bytes of a provider."""
        whole, events = self._refusal(wire) if self.reason == "refusal" else self._answer(wire)
        return stream(*map(event, events)) if streamed else json_reply(whole)

    def _answer(self, wire: Wire) -> tuple[Json, list[Any]]:
        events = [*wire.said(*self.words), *wire.ended(*self.words, finish=self.finish)]
        return wire.whole(self.text, self.finish), events

    def _refusal(self, wire: Wire) -> tuple[Json, list[Any]]:
        if isinstance(wire, Chat):
            events = [*wire.said(), wire.chunk({"refusal": self.text}), *wire.ended()]
            return wire.whole("", refusal=self.text), events
        if isinstance(wire, Responses):
            part = {"type": "refusal", "refusal": self.text}
            events = [*wire.said(), {"type": "response.refusal.delta", "delta": self.text}, *wire.ended()]
            return wire.response("completed", {"type": "message", "content": [part]}), events
        return wire.whole(self.text, "content_filter"), [*wire.said(self.text), *wire.ended(finish="content_filter")]

    def reason_on(self, wire: Wire) -> str:
        """Return the reason that a provider can give: Anthropic reports its filter as a refusal."""
        return "refusal" if self.reason == "filtered" and isinstance(wire, Messages) else self.reason


UNFIT = {
    "text": Unfit("text", ("Ada ", "is 36.")),
    "shape": Unfit("shape", ('{"name": "Ada", ', '"years": 36}')),
    "cut": Unfit("cut", ('{"name": ', '"Ad'), "length"),
    "filtered": Unfit("filtered", (), "content_filter"),
    "empty": Unfit("empty"),
    "refusal": Unfit("refusal", ("I cannot.",)),
}
CORRECTABLE = [unfit for unfit in UNFIT.values() if unfit.reason not in ("filtered", "refusal")]


def fitting(wire: Wire, *, streamed: bool) -> Reply:
    """Return an answer that fits."""
    return stream(*wire.stream(ADA_TEXT)) if streamed else json_reply(wire.whole(ADA_TEXT))
