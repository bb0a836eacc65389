"""Files with every kind of connection, and no variable that they name: what sends nothing works, and the call that
needs a variable says which, for which field, and on which line."""

import json
import os
import warnings
from pathlib import Path
from typing import NamedTuple

import pytest
from typer.testing import CliRunner, Result

from prompty import PromptAgent, invoke, load, prepare, render, turn
from prompty.analysis.explain import explain
from prompty.cli.app import app
from prompty.errors import LoadError, PromptyError, PromptyWarning
from prompty.testing import Player, Recorder, Script, register_script
from prompty.tools import register_tool_kind
from tests.loopback import refusing_port


class File(NamedTuple):
    """A prompt's frontmatter. `said` is what a call says of each variable, on the line that names it.

    `use` is the function that needs them. With `lists`, a server names the tools.
    """

    frontmatter: str
    said: dict[str, str]
    use: str = "invoke"
    lists: bool = False


def connect(provider: str, connection: str, **said: str) -> File:
    return File(f"model:\n  id: m\n  provider: {provider}\n  connection:\n    {connection}\n", said)


def offer(kind: str, connection: str, *, lists: bool = False, **said: str) -> File:
    specification = "    specification: api.json\n" if kind == "openapi" else ""
    tool = f"  - name: weather\n    kind: {kind}\n{specification}    connection:\n      {connection}\n"
    return File(f"model: {{id: m, connection: {{kind: key, apiKey: k}}}}\ntools:\n{tool}", said, "turn", lists)


def fall_back(entry: str, **said: str) -> File:
    first = '{id: m, connection: {kind: anonymous, endpoint: "http://127.0.0.1:PORT/v1"}}'
    return File(f"model: {first}\n{entry}\n", said)


KEY = "`model.connection.apiKey`"
ENDPOINT = "`model.connection.endpoint`"
TOOL_KEY = "`tools.0.connection.apiKey`"
TOOL_ENDPOINT = "`tools.0.connection.endpoint`"
V1 = "model:\n  api: chat\n  configuration:\n"
FILES = {
    "a key": connect("openai", "{kind: key, apiKey: '${env:UNSET_KEY}'}", UNSET_KEY=KEY),
    "a key without a kind": connect("openai", "{apiKey: '${env:UNSET_KEY}'}", UNSET_KEY=KEY),
    "part of a key": connect("openai", "{kind: key, apiKey: 'x-${env:UNSET_KEY}'}", UNSET_KEY=KEY),
    "an endpoint": connect("openai", "{kind: key, apiKey: k, endpoint: '${env:UNSET_URL}'}", UNSET_URL=ENDPOINT),
    "a host": connect("openai", "{apiKey: k, endpoint: 'https://${env:UNSET_HOST}/v1'}", UNSET_HOST=ENDPOINT),
    "a user in an endpoint": connect(
        "openai", "{kind: anonymous, endpoint: 'https://me:${env:UNSET_PASSWORD}@h.test'}", UNSET_PASSWORD=ENDPOINT
    ),
    "two lines": connect(
        "openai",
        "endpoint: ${env:UNSET_URL}\n    apiKey: ${env:UNSET_KEY}",
        UNSET_URL=ENDPOINT,
        UNSET_KEY=KEY,
    ),
    "Responses": File(
        "model:\n  id: m\n  apiType: responses\n  connection: {kind: key, apiKey: '${env:UNSET_KEY}'}\n",
        {"UNSET_KEY": KEY},
    ),
    "Anthropic": connect("anthropic", "{kind: key, apiKey: '${env:UNSET_KEY}'}", UNSET_KEY=KEY),
    "Anthropic's endpoint": connect("anthropic", "{kind: anonymous, endpoint: '${env:UNSET_URL}'}", UNSET_URL=ENDPOINT),
    "Azure": connect(
        "azure",
        "{kind: key, endpoint: '${env:UNSET_URL}', apiKey: '${env:UNSET_KEY}'}",
        UNSET_URL=ENDPOINT,
        UNSET_KEY=KEY,
    ),
    "Azure's API version": connect(
        "azure",
        "{kind: key, endpoint: 'https://r.openai.azure.com', apiKey: k, apiVersion: '${env:UNSET_VERSION}'}",
        UNSET_VERSION="`model.connection.apiVersion`",
    ),
    "Foundry": connect("foundry", "{kind: foundry, endpoint: '${env:UNSET_URL}'}", UNSET_URL=ENDPOINT),
    "Foundry with a key": connect(
        "foundry", "{kind: key, endpoint: 'https://r.services.ai.azure.com', apiKey: '${env:UNSET_KEY}'}", UNSET_KEY=KEY
    ),
    "anonymous": connect("openai", "{kind: anonymous, endpoint: '${env:UNSET_URL}'}", UNSET_URL=ENDPOINT),
    "a registered client": connect(
        "openai", "{kind: reference, name: '${env:UNSET_NAME}'}", UNSET_NAME="`model.connection.name`"
    ),
    "a remote connection": connect("openai", "{kind: remote, name: '${env:UNSET_NAME}', endpoint: 'https://x.test'}"),
    "OAuth": connect("openai", "{kind: oauth, clientSecret: '${env:UNSET_SECRET}', clientId: me}"),
    "a model's id": File("model: ${env:UNSET_MODEL}\n", {"UNSET_MODEL": "`model`"}),
    "an option": File(
        "model:\n  id: m\n  connection: {apiKey: k}\n  options: {temperature: '${env:UNSET_NUMBER}'}\n",
        {"UNSET_NUMBER": "`model.options.temperature`"},
    ),
    "an option of a provider": File(
        "model:\n  id: m\n  connection: {apiKey: k}\n  options: {additionalProperties: {user: '${env:UNSET_USER}'}}\n",
        {"UNSET_USER": "`model.options.additionalProperties.user`"},
    ),
    "a connection in a file": File(
        "model:\n  id: m\n  connection: ${file:connection.yaml}\n", {"UNSET_KEY": "`model.connection`"}
    ),
    "a fallback": fall_back(
        "fallbacks:\n  - {id: n, connection: {apiKey: '${env:UNSET_KEY}'}}",
        UNSET_KEY="`fallbacks.0.connection.apiKey`",
    ),
    "a fallback in metadata": fall_back(
        "metadata:\n  fallbacks:\n    - {id: n, connection: {kind: anonymous, endpoint: '${env:UNSET_URL}'}}",
        UNSET_URL="`metadata.fallbacks.0.connection.endpoint`",
    ),
    "the id of a fallback": fall_back("fallbacks:\n  - ${env:UNSET_MODEL}", UNSET_MODEL="`fallbacks.0`"),
    "MCP": offer("mcp", "{endpoint: 'https://m.test', apiKey: '${env:UNSET_KEY}'}", lists=True, UNSET_KEY=TOOL_KEY),
    "an MCP endpoint": offer("mcp", "{endpoint: '${env:UNSET_URL}'}", lists=True, UNSET_URL=TOOL_ENDPOINT),
    "a registered MCP server": offer(
        "mcp",
        "{kind: reference, name: '${env:UNSET_NAME}'}",
        lists=True,
        UNSET_NAME="`tools.0.connection.name`",
    ),
    "OpenAPI": offer("openapi", "{endpoint: 'https://api.test', apiKey: '${env:UNSET_KEY}'}", UNSET_KEY=TOOL_KEY),
    "an OpenAPI endpoint": offer("openapi", "{endpoint: '${env:UNSET_URL}'}", UNSET_URL=TOOL_ENDPOINT),
    "OpenAPI with OAuth": offer(
        "openapi",
        "{endpoint: 'https://a.test', tokenUrl: 'https://t.test', clientId: me, clientSecret: '${env:UNSET_SECRET}'}",
        UNSET_SECRET="`tools.0.connection.clientSecret`",
    ),
    "a kind of the host": offer("house", "{kind: key, apiKey: '${env:UNSET_KEY}'}", lists=True, UNSET_KEY=TOOL_KEY),
    "v1 with Azure": File(
        f"{V1}    type: azure_openai\n    azure_deployment: gpt-4o\n"
        "    azure_endpoint: ${env:UNSET_URL}\n    api_key: ${env:UNSET_KEY}\n",
        {"UNSET_URL": "`model.configuration.azure_endpoint`", "UNSET_KEY": "`model.configuration.api_key`"},
    ),
    "v1 with OpenAI": File(
        f"{V1}    type: openai\n    name: ${{env:UNSET_MODEL}}\n    api_key: ${{env:UNSET_KEY}}\n",
        {"UNSET_MODEL": "`model.configuration.name`", "UNSET_KEY": "`model.configuration.api_key`"},
    ),
}
API = {
    "openapi": "3.1.0",
    "info": {"title": "Weather", "version": "1"},
    "paths": {"/now": {"get": {"operationId": "now", "responses": {"200": {"description": "The weather."}}}}},
}
CASES = "cases:\n  - name: a\n    expect: {%s}\n"
files = pytest.mark.parametrize("file", FILES.values(), ids=FILES)


class House:
    """A kind of tool that a host registers."""

    async def describe(self, tool: object, agent: object, /) -> list[object]:
        raise AssertionError("a tool without its key is not described")


@pytest.fixture(autouse=True)
def _no_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clean_registry: None) -> None:
    for name in os.environ:
        if "KEY" in name or "ENDPOINT" in name or "API" in name:
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    register_tool_kind("house", House())  # type: ignore[arg-type]  # it describes nothing
    warnings.simplefilter("ignore", PromptyWarning)


def write(file: File, folder: Path) -> Path:
    """Write a prompt and the files beside it."""
    (folder / "api.json").write_text(json.dumps(API))
    (folder / "connection.yaml").write_text("apiKey: ${env:UNSET_KEY}")
    with refusing_port() as port:
        text = f"---\n{file.frontmatter.replace('PORT', str(port))}---\nuser:\nHi\n"
    prompt = folder / "p.prompty"
    prompt.write_text(text)
    return prompt


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


def find_line(prompt: Path, variable: str) -> int:
    """Return the line of a reference, or of the reference to the file that has it."""
    lines = prompt.read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if f"env:{variable}}}" in line or "${file:" in line)


def assert_said(message: str, file: File, prompt: Path) -> None:
    for variable, place in file.said.items():
        line = find_line(prompt, variable)
        assert f"{prompt.name}:{line}:" in message
        assert f"Environment variable '{variable}' not set, which {place}" in message
        assert f"Set {next(iter(file.said))}" in message


def test_there_are_thirty() -> None:
    assert len(FILES) >= 30


@files
@pytest.mark.parametrize(
    "command",
    ["check", "render", "render --template", "explain", "explain --connect", "check --list", "migrate --diff"],
)
def test_a_command_that_sends_nothing_needs_no_variable(command: str, file: File, tmp_path: Path) -> None:
    prompt = write(file, tmp_path)
    shown = run(*command.split(), prompt.name)
    if file.lists and command == "explain --connect":
        assert shown.exit_code == 1
        assert_said(shown.output, file, prompt)
        assert "load(" not in shown.output
    else:
        is_wrong = command == "check" and not file.said  # the provider has no connections of this kind
        assert shown.exit_code == is_wrong, shown.output


@files
def test_a_test_that_sends_nothing_needs_no_variable(file: File, tmp_path: Path) -> None:
    write(file, tmp_path)
    levels = "render: {contains: Hi}" if file.use == "turn" else "render: {contains: Hi}, wire: {contains: Hi}"
    (tmp_path / "p.test.yaml").write_text(CASES % levels)
    shown = run("test", "p.test.yaml")
    assert shown.exit_code == 0, shown.output


@files
@pytest.mark.usefixtures("clean_registry")
def test_python_needs_no_variable_before_a_call(file: File, tmp_path: Path) -> None:
    agent = load(write(file, tmp_path), missing_env="defer")
    assert "Hi" in render(agent)
    assert prepare(agent)[-1].text == "Hi"
    if file.lists:
        return
    assert explain(agent).messages
    with Script("Hello"):
        assert invoke(agent) == "Hello"
    register_script("x", Script("Hello"))
    if "- {id: n" not in file.frontmatter:  # a fallback is connected, too
        assert invoke(agent, model="scripted:x") == "Hello"


@pytest.mark.parametrize("loaded", [True, False])
@files
def test_the_call_names_the_variable_the_connection_and_the_line(file: File, loaded: bool, tmp_path: Path) -> None:
    prompt = write(file, tmp_path)
    with pytest.raises(LoadError) as refused:
        load(prompt)
    for variable in file.said:
        assert f"Environment variable '{variable}' not set" in str(refused.value)
        assert f"Set {variable}, or add a default" in str(refused.value)
    assert "missing_env='defer'" in str(refused.value)
    agent: PromptAgent | Path = load(prompt, missing_env="defer") if loaded else prompt
    with pytest.raises(PromptyError) as caught:
        turn(agent, max_retries=0) if file.use == "turn" else invoke(agent, max_retries=0)
    assert_said(str(caught.value), file, prompt)
    assert "--model" not in str(caught.value)


@files
def test_the_command_names_the_variable_the_connection_and_the_line(file: File, tmp_path: Path) -> None:
    prompt = write(file, tmp_path)
    shown = run("run", prompt.name, *(["--turn"] if file.use == "turn" else []))
    assert shown.exit_code == 1
    assert_said(shown.output, file, prompt)
    assert "load(env" not in shown.output
    assert shown.output.count("not set") == len(file.said)


@files
@pytest.mark.usefixtures("clean_registry")
def test_another_model_needs_no_variable_of_the_file(file: File, tmp_path: Path) -> None:
    prompt = write(file, tmp_path)
    register_script("x", Script("Hello"))
    shown = run("run", prompt.name, "--model", "scripted:x")
    if file.lists or "- {id: n" in file.frontmatter:  # a fallback is connected, too
        assert shown.exit_code == 1
        assert_said(shown.output, file, prompt)
    else:
        assert (shown.exit_code, shown.stdout) == (0, "Hello\n"), shown.output
        assert "not set" not in shown.output


@pytest.mark.usefixtures("clean_registry")
def test_a_migrated_file_runs_on_another_model_without_its_variables(tmp_path: Path) -> None:
    prompt = write(FILES["v1 with Azure"], tmp_path)
    assert run("migrate", "--write", prompt.name).exit_code == 0
    assert "${env:UNSET_KEY}" in prompt.read_text()
    register_script("x", Script("Hello"))
    shown = run("run", prompt.name, "--model", "scripted:x")
    assert (shown.exit_code, shown.output) == (0, "Hello\n")


def test_a_recording_replays_without_the_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prompt, recording = write(FILES["a key"], tmp_path), tmp_path / "recording.jsonl"
    monkeypatch.setenv("UNSET_KEY", "a-key-of-the-test")
    with Recorder(recording), Script("Hello"):
        assert invoke(load(prompt)) == "Hello"
    monkeypatch.delenv("UNSET_KEY")
    with Player(recording):
        assert invoke(prompt) == "Hello"
