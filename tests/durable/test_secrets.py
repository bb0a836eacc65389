"""A run keeps where its secrets are, and never what they are: every file of the database is searched as bytes."""

import asyncio
from pathlib import Path

import pytest
from dbos import DBOS, DBOSPortableJSONSerializer

from prompty import PromptAgent, tool
from prompty.durable.dbos import answer
from prompty.errors import RequestError
from prompty.testing import Script, register_script
from tests.durable.databases import Databases
from tests.durable.own import TURNS, launched, until
from tests.durable.secret_agent import BOUND, INPUT, KEY, LITERAL, TENANT, USER

READABLE = DBOSPortableJSONSerializer()  # a pickle would hide what is searched for


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_no_secret_is_in_any_table(kind: str, databases: Databases, agent: PromptAgent) -> None:
    url = databases.new(kind)
    seen: list[tuple[str, str, str]] = []
    going_on: list[bool] = []

    @tool(idempotent=True)
    async def look(at: str, token: str, tenant: str, password: str) -> str:
        seen.append((token, tenant, password))
        while not going_on:
            await asyncio.sleep(0.02)
        return f"seen {at}"

    approval = {"look": {"when": {"at": {"const": "there"}}}}
    with launched(url, serializer=READABLE) as program:
        program.start_turn(
            agent,
            {"password": INPUT},
            tools=[look],
            secrets={"the password": INPUT},
            approval=approval,
            stream=True,
        )
        until(lambda: bool(seen))
    going_on.append(True)
    with launched(url, serializer=READABLE) as program:
        program.pause()
        answer(DBOS, "mine", [True])
        assert program.result() == "Done."
    assert set(seen) == {(BOUND, TENANT, INPUT)}
    assert len(seen) == 3
    stored = databases.stored(url)
    assert b"DURABLE_TEST_KEY" in stored
    for secret in (KEY, BOUND, TENANT, INPUT, USER, LITERAL):
        assert secret.encode() not in stored


def test_a_process_that_lacks_a_secret_says_which(
    agent: PromptAgent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"sqlite:///{tmp_path}/own.db"
    seen: list[str] = []

    @tool
    async def look(at: str, token: str, tenant: str, password: str) -> str:
        seen.append(at)
        await asyncio.sleep(60)
        return at

    def start(id: str) -> None:
        program.start_turn(agent, {"password": INPUT}, id=id, tools=[look], secrets={"the password": INPUT})

    with launched(url) as program:
        start("a")
        start("b")
        until(lambda: len(seen) == 2)
    TURNS["b"].options.pop("secrets")
    with launched(url) as program, pytest.raises(RequestError, match="the secret 'the password'"):
        program.result("b")
    monkeypatch.delenv("DURABLE_TEST_KEY")
    with launched(url) as program, pytest.raises(RequestError, match="DURABLE_TEST_KEY"):
        program.result("a")


def test_what_looks_like_a_reference_in_an_input_stays_what_it_is(tmp_path: Path) -> None:
    trick = {"$secret": {"name": "key"}, "keys": ["model"], "name": "key"}
    agent = PromptAgent.model_validate(
        {
            "model": {"id": "trick", "provider": "scripted"},
            "instructions": "user:\n{{ trick }}",
        }
    )
    script = Script("Done.")
    register_script("trick", script)
    with launched(f"sqlite:///{tmp_path}/own.db") as program:
        assert program.start_turn(agent, {"trick": trick}, secrets={"key": KEY}).get_result() == "Done."
    [request] = script.requests
    assert KEY not in str(request)
    assert "$secret" in str(request)
