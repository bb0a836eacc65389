"""A durable turn keeps the text it began with, whatever happens to the files of its prompt."""

import asyncio
from pathlib import Path

from dbos import DBOS

from prompty import load, tool
from prompty.testing import Script, call, register_script
from tests.durable.own import launched, until


def write_prompt(folder: Path) -> Path:
    folder.mkdir()
    body = 'system:\nOld.\n{% include "_rules.md" %}\nuser:\nHi\n'
    (folder / "ask.prompty").write_text(f"---\nmodel: {{provider: scripted, id: small}}\n---\n{body}")
    (folder / "ask.big.prompty").write_text(f"---\nmodel: {{id: composed}}\n---\n{body.replace('Old', 'Big')}")
    (folder / "_rules.md").write_text("Be kind.\n")
    return folder / "ask.prompty"


def test_a_turn_that_another_process_goes_on_with_keeps_the_text_it_began_with(tmp_path: Path) -> None:
    path, url = write_prompt(tmp_path / "prompts"), f"sqlite:///{tmp_path}/own.db"
    agent = load(path, variant="big")
    script = Script(call("look"), "Done.")
    register_script("composed", script)
    looked: list[bool] = []

    @tool(idempotent=True)
    async def look() -> str:
        looked.append(True)
        while len(looked) < 2:
            await asyncio.sleep(0.01)
        return "seen"

    with launched(url) as program:
        program.start_turn(agent, tools=[look])
        until(lambda: looked == [True])
    (path.parent / "_rules.md").write_text("Be rude.\n")
    (path.parent / "ask.big.prompty").write_text("---\nmodel: {id: other}\n---\n")
    path.unlink()
    with launched(url) as program:
        assert program.result() == "Done."
        stored = str(DBOS.list_workflow_steps("mine")[0]["output"])
    first, second = script.requests
    assert first["messages"][0]["content"] == second["messages"][0]["content"] == "Big.\nBe kind."
    assert all(digest in stored for digest in agent.files.values())
    assert agent.files.keys() == {"ask.prompty", "_rules.md"}


WITH_SKILLS = """---
model: {provider: scripted, id: skilled}
tools:
  - {name: wait, kind: function}
  - {name: skills, kind: skills, path: ./skills}
---
user:
Hi
"""


def test_a_durable_turn_reads_the_folder_again_where_it_goes_on(tmp_path: Path) -> None:
    """The record has the path of the folder. Names and descriptions are stored with the tools, and bodies when read."""
    folder = tmp_path / "skills" / "review"
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text("---\nname: review\ndescription: Old.\n---\nOld body.\n")
    (tmp_path / "ask.prompty").write_text(WITH_SKILLS)
    script = Script(call("read_skill", skill="review"), call("wait"), call("read_skill", skill="review"), "Done.")
    register_script("skilled", script)
    waited: list[bool] = []

    @tool(idempotent=True)
    async def wait() -> str:
        waited.append(True)
        while len(waited) < 2:
            await asyncio.sleep(0.01)
        return "waited"

    url = f"sqlite:///{tmp_path}/own.db"
    with launched(url) as program:
        program.start_turn(tmp_path / "ask.prompty", tools=[wait])
        until(lambda: waited == [True])
    (folder / "SKILL.md").write_text("---\nname: review\ndescription: New.\n---\nNew body.\n")
    with launched(url) as program:
        assert program.result() == "Done."
    told = [one["content"] for one in script.requests[-1]["messages"] if one["role"] == "tool"]
    assert told == ["Old body.", "waited", "New body."]
    assert all("- review: Old." in str(request["tools"]) for request in script.requests)
