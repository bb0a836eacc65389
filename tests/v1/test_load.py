"""Loading v1 files: what stops a load and what does not, where problems are, and what a file may do."""

import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from prompty import PromptAgent, invoke, load, loads, prepare
from prompty.analysis.check import check_text
from prompty.analysis.explain import explain
from prompty.errors import LoadError, PromptyWarning, RequestError
from tests.v1.corpus import load_quietly

HEAD = "---\nmodel:\n  api: chat\n"


def read(frontmatter: str, body: str = "user:\nHi", **options: object) -> PromptAgent:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PromptyWarning)
        return loads(f"---\n{frontmatter}\n---\n{body}", **options)  # type: ignore[arg-type]  # those of `loads`


AZURE = """model:
  api: chat
  configuration:
    type: azure_openai
    azure_deployment: gpt-4o
    azure_endpoint: {endpoint}
    api_key: {key}
"""
UNSET = {
    "the endpoint": ("${env:NOWHERE}", "key", "Environment variable 'NOWHERE' not set"),
    "part of the endpoint": ("${env:NOWHERE}/path", "key", "Environment variable 'NOWHERE' not set"),
    "the key": ("http://127.0.0.1:1", "${env:NOWHERE}", "Environment variable 'NOWHERE' not set"),
    "part of the key": ("http://127.0.0.1:1", "x-${env:NOWHERE}", "Environment variable 'NOWHERE' not set"),
}


@pytest.mark.parametrize(("endpoint", "key", "said"), UNSET.values(), ids=UNSET)
def test_a_variable_of_the_model_that_is_not_set_stops_only_a_call(endpoint: str, key: str, said: str) -> None:
    agent = read(AZURE.format(endpoint=endpoint, key=key), env={}, missing_env="defer")
    assert prepare(agent)[0].text == "Hi"
    with pytest.raises(RequestError, match=said) as caught:
        invoke(agent)
    assert caught.value.fix.startswith("Set NOWHERE, ")


def test_a_variable_in_an_option_stops_only_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "key")
    text = "model: {api: chat, configuration: {type: openai, name: x}, parameters: {temperature: '${env:NOWHERE}'}}"
    agent = read(text, env={}, missing_env="defer")
    assert "temperature" not in explain(agent).body
    with pytest.raises(RequestError, match=r"<text>:2:86: .*'NOWHERE' not set, which `model.parameters.temperature`"):
        invoke(agent)
    assert read(text, env={"NOWHERE": "0.5"}).model.options.temperature == 0.5


def test_a_variable_that_names_the_model_stops_only_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "key")
    text = "model: {api: chat, configuration: {type: openai, name: '${env:NOWHERE}'}}"
    agent = read(text, env={}, missing_env="defer")
    assert prepare(agent)
    with pytest.raises(RequestError, match=r"'NOWHERE' not set, which `model\.configuration\.name` names"):
        invoke(agent)
    assert read(text, env={"NOWHERE": "gpt-4o"}).model.id == "gpt-4o"


def test_a_variable_in_a_key_that_nothing_reads_is_not_needed() -> None:
    configuration = "{type: azure_openai, azure_deployment: x, region: '${env:NOWHERE}'}"
    assert read(f"model: {{api: chat, configuration: {configuration}}}", env={}).model.id == "x"


def test_a_variable_in_a_sample_is_needed() -> None:
    with pytest.raises(LoadError, match=r"sample\.x: Environment variable 'NOWHERE' not set"):
        read("sample: {x: '${env:NOWHERE}'}", env={})


PROBLEMS = {
    "a wrong option": (HEAD + "  parameters:\n    temperature: hot\n---\nHi", 5, "model.parameters.temperature"),
    "a wrong model": (HEAD + "  configuration: {type: openai, name: [x]}\n---\nHi", 4, "model.configuration.name"),
    "a wrong description": (HEAD + "inputs:\n  x: {type: string, description: 5}\n---\nHi", 5, "inputs.x.description"),
    "a missing file": (HEAD + "sample:\n  x: ${file:nowhere.json}\n---\nHi", 5, "sample.x"),
    "a missing sample": (HEAD + "sample: ${file:nowhere.json}\n---\nHi", 4, "sample"),
    "a missing base": (HEAD + "base: nowhere.prompty\n---\nHi", 4, "base"),
}


@pytest.mark.parametrize(("text", "line", "key"), PROBLEMS.values(), ids=PROBLEMS)
def test_a_problem_is_at_its_place_in_the_v1_file(text: str, line: int, key: str, tmp_path: Path) -> None:
    with pytest.raises(LoadError) as caught:
        loads(text, base_dir=tmp_path)
    assert [(problem.line, problem.key) for problem in caught.value.problems] == [(line, key)]


def test_problems_behind_a_converted_loop_are_at_their_lines() -> None:
    body = "system:\nHi\n{% for m in history %}\n{{m.role}}:\n{{m.content}}\n{% endfor %}\nuser:\n{{nobody}}"
    problems = check_text(f"---\nsample: {{history: []}}\n---\n{body}")
    assert [(problem.code, problem.line) for problem in problems] == [("version-1", 2), ("undeclared-variable", 11)]


def test_a_sample_may_not_lie_outside_the_folder(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "secret.json").write_text('{"x": "secret"}')
    for text in ("sample: ../secret.json", "sample: ${file:../secret.json}", "base: ../secret.prompty"):
        with pytest.raises(LoadError, match="outside allowed roots"):
            read(text, base_dir=tmp_path / "inner")


def test_the_data_of_a_file_does_not_refer_to_other_files(tmp_path: Path) -> None:
    (tmp_path / "sample.json").write_text('{"x": "${FILE:other.txt}"}')
    (tmp_path / "other.txt").write_text("other")
    with pytest.raises(LoadError, match="refers to another file"):
        read("sample: sample.json", base_dir=tmp_path)


def test_a_key_of_the_environment_does_not_go_to_an_endpoint_that_only_the_file_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AZURE_OPENAI_API_KEY", "planted")
    agent = read(AZURE.format(endpoint="https://evil.test", key="${ENV:AZURE_OPENAI_API_KEY}"))
    with pytest.raises(RequestError, match=r"evil\.test, which only the file names"):
        invoke(agent)
    monkeypatch.setenv("OPENAI_API_KEY", "planted")
    agent = read("model: {api: chat, configuration: {type: openai, name: x, base_url: 'https://evil.test'}}")
    with pytest.raises(RequestError, match=r"evil\.test, which only the file names"):
        invoke(agent)


def test_bases_merge_and_the_file_itself_counts(tmp_path: Path) -> None:
    (tmp_path / "top.prompty").write_text("---\nbase: middle.prompty\nmodel: {parameters: {seed: 1}}\n---\nuser:\nTop")
    (tmp_path / "middle.prompty").write_text(
        "---\nbase: last.prompty\nmodel: {api: chat, parameters: {seed: 2, top_p: 0.5}}\n---\n"
    )
    (tmp_path / "last.prompty").write_text("---\ndescription: shared\nmodel: {parameters: {top_p: 1.0}}\n---\n")
    agent = load_quietly(tmp_path / "top.prompty")
    assert (agent.model.options.seed, agent.model.options.top_p, agent.description) == (1, 0.5, "shared")
    assert agent.instructions == "user:\nTop"


def test_bases_that_lead_back_are_an_error(tmp_path: Path) -> None:
    for name, base in (("a", "b"), ("b", "a")):
        (tmp_path / f"{name}.prompty").write_text(f"---\nbase: {base}.prompty\n---\nHi")
    with pytest.raises(LoadError, match=r"`base` leads back to b\.prompty"):
        load(tmp_path / "a.prompty")


def test_a_changed_sample_or_base_is_read_again(tmp_path: Path) -> None:
    (tmp_path / "a.prompty").write_text("---\nbase: b.prompty\nsample: s.json\n---\nuser:\n{{x}}")
    (tmp_path / "b.prompty").write_text("---\ndescription: old\n---\n")
    (tmp_path / "s.json").write_text('{"x": 1}')
    assert load_quietly(tmp_path / "a.prompty").inputs[0].default == 1
    (tmp_path / "b.prompty").write_text("---\ndescription: new one\n---\n")
    (tmp_path / "s.json").write_text('{"x": "two"}')
    agent = load_quietly(tmp_path / "a.prompty")
    assert (agent.inputs[0].default, agent.description) == ("two", "new one")


V2 = {
    "a v2 file": "model: {id: x, connection: {kind: key, apiKey: x}}\ninputs: {x: {kind: string}}",
    "an object with a key `type`": "inputs: {shape: {type: circle, size: 3}}",
    "a base that is no file": "base: camp",
}


@pytest.mark.parametrize("frontmatter", V2.values(), ids=V2)
def test_a_v2_file_is_not_taken_for_v1(frontmatter: str) -> None:
    loads(f"---\n{frontmatter}\n---\nHi")  # any warning is an error


@pytest.mark.process
def test_a_v2_file_does_not_import_the_code_for_v1(tmp_path: Path) -> None:
    (tmp_path / "a.prompty").write_text("---\nmodel: gpt-4o\n---\nuser:\nHi")
    code = (
        "import sys, prompty; prompty.prepare(prompty.load(sys.argv[1])); "
        "print([name for name in sys.modules if 'v1' in name or 'version_1' in name])"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "a.prompty")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603  our own code
    assert (done.stdout, done.returncode) == ("[]\n", 0)


def test_a_connection_in_a_file_of_its_own_is_v2(tmp_path: Path) -> None:
    (tmp_path / "c.json").write_text('{"kind": "reference", "name": "mine"}')
    agent = loads("---\nmodel: {id: x, connection: '${file:c.json}'}\n---\nHi", base_dir=tmp_path)
    assert agent.model.connection == read("model: {id: x, connection: mine}").model.connection


def test_check_says_that_a_v1_file_names_no_model() -> None:
    text = "---\nmodel: {api: chat}\n---\nuser:\nHi"
    assert {problem.code for problem in check_text(text)} == {"version-1", "missing-model"}


def test_a_kind_that_is_no_text_is_a_problem_of_the_file() -> None:
    with pytest.raises(LoadError, match="expected one of string"):
        read("inputs: {x: {kind: [], default: 1}}\nsample: {x: 2}")
