"""Secrets belong to an owner: what one tenant hides is masked in its own errors, logs and traces, and nowhere else."""

import asyncio
from pathlib import Path

import pytest

from prompty import Registry, invoke, invoke_async, loads, trace_to
from prompty.errors import ModelError
from prompty.model.agent import PromptAgent
from prompty.safety.redaction import MASK, Redactor, current_redactor, hide_secrets, mask_secrets
from prompty.tracing import Tracer
from tests.drivers.clients import close_clients
from tests.drivers.wires import Chat
from tests.loopback import Server, json_reply

TENANTS = 64


def tenant(server: Server, key: str, text: str = "Hi", registry: Registry | None = None) -> PromptAgent:
    connection = f"{{kind: key, endpoint: '{server.url}/v1', apiKey: {key}}}"
    source = f"---\nmodel: {{id: m, connection: {connection}}}\n---\nuser:\n{text}"
    return loads(source, registry=registry) if registry else loads(source)


def test_a_key_that_is_a_word_is_not_masked_in_the_trace_of_another_tenant(tmp_path: Path) -> None:
    text = "We meet on Wednesday at the office."
    with Server() as server:
        server.answer(*[json_reply(Chat().whole("Hello"))] * 2)
        invoke(tenant(server, "Wednesday"))
        trace_to(f"file:{tmp_path}")
        try:
            invoke(tenant(server, "another-key", text))
        finally:
            Tracer.clear()
            close_clients()
    written = "".join(path.read_text() for path in tmp_path.iterdir())
    assert text in written
    assert mask_secrets(text) == text


@pytest.mark.parametrize("shares_registry", [True, False])
def test_an_error_masks_the_key_of_its_own_tenant_only(shares_registry: bool) -> None:
    """A service that repeats every key in its errors shows which are masked: no tenant learns from its errors what is
    the secret of another one."""
    keys = [f"word-number-{number}" for number in range(TENANTS)]

    async def fail(key: str) -> str:
        agent = tenant(server, key, registry=None if shares_registry else Registry())
        with pytest.raises(ModelError) as caught:
            await invoke_async(agent, max_retries=0)
        return str(caught.value)

    async def fail_all() -> list[str]:
        return await asyncio.gather(*map(fail, keys))

    with Server() as server:
        server.answer(*[json_reply({"error": {"message": " ".join(keys)}}, 400)] * TENANTS)
        errors = asyncio.run(fail_all())
        close_clients()
    for key, error in zip(keys, errors, strict=True):
        others = [other for other in keys if other != key]
        assert key not in error.split()
        assert [other for other in others if other not in error.split()] == []


def test_what_a_run_hides_is_masked_inside_it_and_not_after_it() -> None:
    with Redactor(["first-secret"]).inside() as redactor:
        hide_secrets(["second-secret"])
        inner = Redactor(["third-secret"], parent=redactor)
        with inner.inside():
            assert mask_secrets("first-secret second-secret third-secret") == f"{MASK} {MASK} {MASK}"
            hide_secrets(["fourth-secret"])
        assert mask_secrets("second-secret third-secret fourth-secret") == f"{MASK} third-secret fourth-secret"
    assert current_redactor() is None
    hide_secrets(["nobody-hides-this"])
    assert mask_secrets("first-secret nobody-hides-this") == "first-secret nobody-hides-this"


def test_a_secret_that_continues_a_shorter_one_of_the_run_above_is_masked_whole() -> None:
    above = Redactor(["key-of-ada"])
    assert Redactor(["key-of-ada-2026"], parent=above).mask("it was key-of-ada-2026") == f"it was {MASK}"
    above.hide(["key-of-ada-2026-11"])
    assert Redactor(["key-of-ada-2026"], parent=above).mask("it was key-of-ada-2026-11") == f"it was {MASK}"
