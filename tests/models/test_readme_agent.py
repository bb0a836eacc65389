"""README's agent on other models: by `model=` alone, and no request is refused."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from typer.testing import CliRunner

from prompty.cli.app import app
from prompty.events import FellBack
from prompty.memory import SqliteMemory
from prompty.testing import Player, Recorder
from scripts.pages import read_blocks
from tests.internet import Arrival, Internet, Response
from tests.servers.rules import Received
from tests.servers.rules_over_http import KEYS, TODAY, answer, serve_rules
from tests.servers.rules_server import RulesServer
from tests.ways import Seen, Way, every_way, sync_and_async

README = Path(__file__).parents[2] / "README.md"
QUESTION = {"question": "Where is order 7?"}
RESULT = {"answer": "text", "urgent": True}
ENCRYPTED = ["reasoning.encrypted_content"]
# The API that each model is asked on, and what is in the body because of the model.
MODELS: dict[str, tuple[str, dict[str, object]]] = {
    "openai:gpt-6-luna": ("/v1/responses", {"store": False, "include": ENCRYPTED}),
    "openai:gpt-5.6-terra": ("/v1/responses", {"store": False, "include": ENCRYPTED}),
    "openai:gpt-5.4-mini": ("/v1/chat/completions", {}),
    "anthropic:claude-haiku-5-5": ("/v1/messages", {"max_tokens": 16_000}),
    "anthropic:claude-opus-5-5": ("/v1/messages", {"max_tokens": 16_000}),
}
CHOSEN = ("store", "include", "max_tokens", "max_completion_tokens", "max_output_tokens")
every_model = pytest.mark.parametrize("model", MODELS)
OPENAI, CLAUDE = "openai:gpt-6-luna", "anthropic:claude-opus-5-5"
both_directions = pytest.mark.parametrize(("first", "second"), [(OPENAI, CLAUDE), (CLAUDE, OPENAI)])
# What the providers answer when they are overloaded.
FAILURES = {
    "openai": Response(500, {}, b'{"error": {"message": "The server had an error.", "type": "server_error"}}'),
    "anthropic": Response(529, {}, b'{"type": "error", "error": {"type": "overloaded_error", "message": "Busy"}}'),
}


class Shop:
    """README's program, on other models. `orders` are the arguments that its function got."""

    def __init__(self, folder: Path, server: RulesServer, internet: Internet) -> None:
        self.server, self.internet, self.orders = server, internet, list[object]()
        [block] = [block for block in read_blocks(README) if block.title == "support.prompty"]
        self.file = folder / "support.prompty"
        self.file.write_text(block.text, encoding="utf-8")
        self.text = self.file.read_bytes()

    def find_order(self, number: int) -> str:
        """Return where an order is."""
        self.orders.append(number)
        return "at the customs office"

    def ask(self, way: Way, model: str, **options: Any) -> Seen:
        return way.turn(self.file, QUESTION, tools=[self.find_order], model=model, sendable=False, **options)

    def check(self, model: str, *, turns: int = 1) -> None:
        """Fail unless each turn had two accepted requests, on the right API, and called the function once."""
        assert self.orders == [1] * turns
        assert self.server.refusals == []
        assert self.file.read_bytes() == self.text
        assert len(self.server.requests) == 2 * turns
        for request in self.server.requests:
            check_request(request, model)


def check_request(request: Received, model: str) -> None:
    """Fail unless a request has the path, the headers and the fields that its model needs, and a schema."""
    path, fields = MODELS[model]
    provider, _, id = model.partition(":")
    assert (request.host, request.path) == (f"api.{provider}.com", path)
    assert request.body["model"] == id
    assert {name: request.body[name] for name in CHOSEN if name in request.body} == fields
    assert request.headers.get("anthropic-version") == ("2026-10-21" if provider == "anthropic" else None)
    assert [get_name(tool) for tool in request.body["tools"]] == ["find_order"]
    assert '"urgent"' in json.dumps(request.body)


def get_name(tool: Mapping[str, Any]) -> object:
    return tool.get("function", tool)["name"]


def fail_at(shop: Shop, provider: str, since: int) -> None:
    """Let a provider be overloaded from a request on."""
    served: list[Arrival] = []

    def respond(arrival: Arrival) -> Response:
        if f"api.{provider}.com" in arrival.origin:
            served.append(arrival)
            if len(served) >= since:
                return FAILURES[provider]
        return answer(shop.server, arrival)

    shop.internet.answer = respond


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    server = RulesServer(today=TODAY)
    with serve_rules(server, tmp_path, monkeypatch) as internet:
        yield Shop(tmp_path, server, internet)


@every_model
@every_way
def test_a_turn_ends_with_the_declared_result_and_without_a_refusal(shop: Shop, way: Way, model: str) -> None:
    seen = shop.ask(way, model)
    assert (seen.error, seen.result) == (None, RESULT)
    assert seen.told == ["at the customs office"]
    shop.check(model)


@every_model
def test_a_turn_of_the_command_line_does_the_same(shop: Shop, model: str, tmp_path: Path) -> None:
    ran = tmp_path / "orders"
    tools = tmp_path / "shop.py"
    tools.write_text(
        "from pathlib import Path\n"
        "from prompty import tool\n"
        "@tool\n"
        "def find_order(number: int) -> str:\n"
        '    """Return where an order is."""\n'
        f"    Path({str(ran)!r}).write_text(str(number))\n"
        '    return "at the customs office"\n'
    )
    words = ["run", str(shop.file), QUESTION["question"], "--tools", str(tools), "--all-tools", "--model", model]
    done = CliRunner().invoke(app, words)
    assert (done.exit_code, json.loads(done.stdout)) == (0, RESULT)
    shop.orders.append(int(ran.read_text()))
    shop.check(model)


@every_model
@sync_and_async
def test_a_session_of_three_turns_has_no_refusal(shop: Shop, way: Way, model: str, tmp_path: Path) -> None:
    for _ in range(3):
        memory = SqliteMemory(tmp_path / "sessions.db")
        seen = shop.ask(way, model, memory=memory, session_id="ada")
        assert (seen.error, seen.result) == (None, RESULT)
    shop.check(model, turns=3)
    assert [message.role for message in seen.messages] == ["system", *["user", "assistant", "tool", "assistant"] * 3]
    last = shop.server.requests[-1].body
    assert json.dumps(last).count(QUESTION["question"]) == 3
    assert count_thoughts(last) == (0 if model == "openai:gpt-5.4-mini" else 3)


def count_thoughts(body: Mapping[str, Any]) -> int:
    """Return how many of its thoughts a request gives back to its model: as items of Responses, or as blocks."""
    items = [item for item in body.get("input", ()) if item.get("type") == "reasoning" and item["encrypted_content"]]
    turns = [message["content"] for message in body.get("messages", ()) if isinstance(message["content"], list)]
    return len(items) + len([block for blocks in turns for block in blocks if block["type"] == "thinking"])


class Fallback(NamedTuple):
    """When the first provider fails: at which request. `asked` are the models that got a request."""

    since: int
    asked: list[int]


FALLBACKS = {
    "at the start": Fallback(1, [1, 1]),
    "in the middle of a turn": Fallback(2, [0, 1]),
}


@both_directions
@pytest.mark.parametrize("fallback", FALLBACKS.values(), ids=FALLBACKS)
@every_way
def test_a_fallback_to_the_other_provider_continues_the_turn(
    shop: Shop, way: Way, first: str, second: str, fallback: Fallback
) -> None:
    fail_at(shop, first.partition(":")[0], fallback.since)
    seen = shop.ask(way, first, fallbacks=[second], max_retries=0)
    assert (seen.error, seen.result, shop.orders) == (None, RESULT, [1])
    assert [event.model for event in seen.of(FellBack)] == [second.partition(":")[2]]
    assert shop.server.refusals == []
    assert len(shop.internet.arrivals) == 3
    for request, index in zip(shop.server.requests, fallback.asked, strict=True):
        check_request(request, (first, second)[index])


@both_directions
@sync_and_async
def test_a_session_goes_on_with_the_first_model_after_a_fallback(
    shop: Shop, way: Way, first: str, second: str, tmp_path: Path
) -> None:
    session: dict[str, Any] = {"memory": SqliteMemory(tmp_path / "sessions.db"), "session_id": "ada"}
    provider = first.partition(":")[0]
    for since in (99, 2, 1, 99):
        fail_at(shop, provider, since)
        seen = shop.ask(way, first, fallbacks=[second], max_retries=0, **session)
        assert (seen.error, seen.result) == (None, RESULT)
    assert shop.orders == [1] * 4
    assert shop.server.refusals == []
    asked = [(first, second)[index] for index in (0, 0, 0, 1, 1, 1, 0, 0)]
    for request, model in zip(shop.server.requests, asked, strict=True):
        check_request(request, model)


@every_model
@every_way
def test_a_recording_plays_without_a_server(
    shop: Shop, way: Way, model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Recorder(tmp_path / "turn.jsonl"):
        recorded = shop.ask(way, model)
    shop.check(model)
    for name in KEYS:
        monkeypatch.delenv(f"{name}_API_KEY")
    with Player(tmp_path / "turn.jsonl"):
        played = shop.ask(way, model)
    assert (played.error, played.result) == (None, RESULT)
    assert played.outcome == recorded.outcome
    assert shop.orders == [1, 1]
    assert len(shop.internet.arrivals) == 2
