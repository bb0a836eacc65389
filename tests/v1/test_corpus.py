"""Public Prompty v1 files load, migrate and run (F13, V1)."""

import json
import os
import re
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from prompty import PromptAgent, check, invoke, load, loads, prepare
from prompty.errors import LoadError, RequestError, UnknownName
from prompty.pipeline.definitions import find_v1_key
from prompty.pipeline.frontmatter import normalize, read_frontmatter, split
from prompty.pipeline.load import read_agent
from prompty.pipeline.migrate import migrate_text
from prompty.registry import DEFAULT
from tests.loopback import Server
from tests.v1.corpus import ENDPOINTS, ROOT, VARIABLES, generate_inputs, get_broken, list_files, load_quietly, name_of

if not ROOT.exists() and not os.environ.get("CI"):
    pytest.skip("the public files are not here", allow_module_level=True)

pytestmark = pytest.mark.slow

FILES = list_files()
READABLE = [file for file in FILES if get_broken(file) is None]
JUDGES = [file for file in READABLE if name_of(file).startswith("azure-ai-evaluation/")]
PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "migrate-from-v1.md"


def migrate(file: Path) -> str:
    return migrate_text(file.read_bytes().decode("utf-8-sig"), file.name, file.parent).text


def is_v1(file: Path) -> bool:
    parts = split(normalize(file.read_bytes().decode("utf-8-sig")))
    return find_v1_key(read_frontmatter(parts.frontmatter or "").data or {}) is not None


@pytest.mark.parametrize("file", READABLE, ids=name_of)
def test_a_public_file_loads_with_one_warning_and_names_the_variables_that_it_needs(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (*VARIABLES, *ENDPOINTS):
        monkeypatch.delenv(name, raising=False)
    written = set(re.findall(r"\$\{env:(\w+)\}", file.read_text(encoding="utf-8-sig"), re.IGNORECASE))
    if written:
        with pytest.raises(LoadError) as refused:
            load(file)
        assert {name for name in written if f"'{name}' not set" in str(refused.value)} == written
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        agent = load(file, missing_env="defer")
    assert {use.variable for use in agent.trust.missing} == written
    assert len(caught) == is_v1(file)
    assert all("`prompty migrate " in str(warning.message) for warning in caught)
    assert prepare(agent, generate_inputs(agent))


@pytest.mark.parametrize("file", [file for file in FILES if get_broken(file)], ids=name_of)
def test_a_public_file_without_its_companions_reports_exactly_those(file: Path) -> None:
    for read in (load, migrate):
        with pytest.raises(LoadError) as caught:
            read(file)
        assert {problem.key: problem.code for problem in caught.value.problems} == get_broken(file)
    errors = {problem.key: problem.code for problem in check(file) if problem.severity == "error"}
    assert errors == get_broken(file)


def _hide_addresses(value: object) -> str:
    """Return a value as text. Two files write a method of a text into the prompt, with its place in memory."""
    return re.sub(r"at 0x[0-9a-f]+", "at 0x0", str(value))


@pytest.mark.usefixtures("environment")
@pytest.mark.parametrize("file", READABLE, ids=name_of)
def test_a_public_file_and_its_migration_are_the_same_agent(file: Path) -> None:
    old, text = load_quietly(file), migrate(file)
    new = loads(text, base_dir=file.parent)  # any warning is an error
    assert new.model_dump() == old.model_dump()
    inputs = generate_inputs(old)
    assert _hide_addresses(prepare(new, inputs)) == _hide_addresses(prepare(old, inputs))
    assert migrate_text(text, file.name, file.parent).text == text
    assert (text != file.read_bytes().decode("utf-8-sig")) == is_v1(file)


def send(server: Server, agent: PromptAgent, **options: Any) -> tuple[str, dict[str, Any]]:
    """Return the path and the body of the request that a call sends."""
    invoke(agent, generate_inputs(agent), outputs_mode="lenient", **options)
    request = server.requests.pop()
    return request.path, request.body


def with_model(agent: PromptAgent) -> PromptAgent:
    """Return the agent with a model, if its file leaves that to the caller."""
    if agent.model.id:
        return agent
    return agent.model_copy(update={"model": agent.model.model_copy(update={"id": "gpt-4o"})})


@pytest.mark.parametrize("file", READABLE, ids=name_of)
def test_a_public_file_and_its_migration_send_the_same_request(file: Path, provider: Server) -> None:
    old, new = (with_model(agent) for agent in (load_quietly(file), loads(migrate(file), base_dir=file.parent)))
    if old.model.provider == "unify":
        for agent in (old, new):
            with pytest.raises(UnknownName, match="unify"):
                invoke(agent, generate_inputs(agent))
        return
    path, body = send(provider, old)
    assert _hide_addresses((path, body)) == _hide_addresses(send(provider, new))
    assert path.partition("?")[0].endswith("/chat/completions")
    assert body["model"] == old.model.id
    assert body["messages"]


def test_the_counts_stand_in_the_guide(capsys: pytest.CaptureFixture[str], environment: None) -> None:
    agents = {file: read_agent(file, (), DEFAULT) for file in FILES}
    named = re.compile(r"^\s*(azure_deployment|model_name|deployment_name):", re.MULTILINE)
    counts = Counter(
        files=len(FILES),
        loaded=len([load_quietly(file) for file in READABLE]),
        broken=len(FILES) - len(READABLE),
        naming_a_model=sum(bool(named.search(file.read_text("utf-8"))) for file in FILES),
        knowing_their_model=sum(bool(agent.model.id) for agent in agents.values()),
        rewritten=sum(map(is_v1, READABLE)),
        judges=len(JUDGES),
    )
    with capsys.disabled():
        print(json.dumps(counts))  # noqa: T201  for whoever looks
    assert counts == {
        "files": 118,
        "loaded": 115,
        "broken": 3,
        "naming_a_model": 59,
        "knowing_their_model": 59,
        "rewritten": 113,
        "judges": 18,
    }
    page = PAGE.read_text("utf-8")
    assert all(re.search(rf"\b{count}\b", page) for count in counts.values())


@pytest.mark.parametrize("file", JUDGES, ids=lambda file: file.stem)
def test_a_judge_of_azure_ai_evaluation_runs_with_a_model_of_the_caller(file: Path, provider: Server) -> None:
    judge = load_quietly(file)
    with pytest.raises(RequestError, match="names no model"):
        invoke(judge, generate_inputs(judge))
    assert not provider.requests
    answer = invoke(judge, generate_inputs(judge), model="azure:gpt-4o")
    assert json.loads(str(answer)) == {"score": 5}
    assert provider.requests[-1].body["model"] == "gpt-4o"
    assert provider.requests[-1].body["response_format"] == {"type": "json_object"}
