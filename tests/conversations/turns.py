"""An agent of the scripted model, and the legality of the histories that its turns leave."""

from collections.abc import Sequence
from typing import Any

from prompty import Message, PromptAgent
from prompty.pipeline.history import normalize_history
from prompty.pipeline.request import build_request
from prompty.providers import PROVIDERS
from prompty.providers.fitting import fit_request
from prompty.registry import DEFAULT
from tests.legality import assert_legal


def scripted(**parts: Any) -> PromptAgent:
    """An agent of the scripted model that says `q` to it."""
    model = {"id": "m", "provider": "scripted", **parts.pop("model", {})}
    body = {"instructions": "system:\nBe brief.\nuser:\n{{q}}", "inputs": {"q": "Hi"}}
    return PromptAgent.model_validate({"model": model, **body, **parts})


def assert_history_is_legal(messages: Sequence[Message]) -> None:
    """Every API takes it, under the ids it is sent with, and with a new question behind it."""
    for provider, api_type in (("openai", "chat"), ("openai", "responses"), ("anthropic", "chat")):
        api = DEFAULT[PROVIDERS].get(provider).api(api_type)
        agent = scripted()
        asked = [*messages, Message("user", [])] if messages and messages[-1].role != "user" else messages
        body = build_request(agent, normalize_history(asked, api.call_ids), fit_request(agent, api)).body
        assert_legal("messages" if provider == "anthropic" else api_type, body)
