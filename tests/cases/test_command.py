"""`prompty test` as a person uses it: a real process, its output and its exit code."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote

import pytest

from tests.batch.folder import PROMPT, until
from tests.batch.hostile import Hostile

pytestmark = pytest.mark.process

EXAMPLE = Path(__file__).parents[2] / "examples" / "prompt-tests"
COMMAND = [sys.executable, "-m", "prompty.cli", "test"]

SCRIPTED = """\
---
name: greet
model:
  id: gpt-test
  provider: scripted
  options:
    temperature: 0.2
  script: [Hello Ada.]
inputs:
  name: {kind: string}
---
user:
Greet {{name}}.
"""
TESTS = """\
cases:
  - name: greets by name
    inputs: {name: Ada}
    expect:
      render: {contains: Ada}
      wire: {path: temperature, equals: 0.2}
      replay: {regex: ^Hello}
  - name: is short
    tags: [style]
    inputs: {name: Bob}
    expect: {replay: {length: {max: 5}}}
"""


def start(folder: Path, *words: str) -> "subprocess.Popen[str]":
    environment = {**os.environ, "COLUMNS": "200", "XDG_STATE_HOME": str(folder / "state"), "PYTHONIOENCODING": "utf-8"}
    return subprocess.Popen(  # noqa: S603  our own command
        [*COMMAND, *words], cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def run(folder: Path, *words: str, code: int = 0) -> tuple[str, str]:
    process = start(folder, *words)
    out, err = process.communicate(timeout=120)
    assert process.returncode == code, out + err
    return out, err


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "greet.prompty").write_text(SCRIPTED)
    (tmp_path / "greet.test.yaml").write_text(TESTS)
    return tmp_path


def test_a_page_links_to_the_trace_of_each_run(project: Path) -> None:
    run(project, "--record", "--trace", "file:my traces", "--html", "pages/all.html", code=1)
    links = re.findall(r'"trace": "([^"]+)"', (project / "pages" / "all.html").read_text())
    assert len(links) == 2
    for link in links:
        assert link.startswith("../my%20traces/greet.")
        assert "Greet" in (project / "pages" / unquote(link)).read_text()


def test_a_traced_run_becomes_a_case(project: Path) -> None:
    (project / "greet.test.yaml").unlink()
    command = [sys.executable, "-m", "prompty.cli", "run", "greet.prompty", "-i", "name=Ada", "--trace", "file:traces"]
    subprocess.run(command, cwd=project, check=True, capture_output=True)  # noqa: S603  our own command
    _, told = run(project, "greet.prompty", "--from-trace", "traces")
    assert re.fullmatch(r"Added the case 'run of [-\d]+ [:\d]+' to greet\.test\.yaml\. Edit its .+\n", told)
    out, _ = run(project)
    assert out.endswith("1 passed\n")
    _, told = run(project, "--from-trace", "traces", code=1)
    assert "Name it: prompty test FILE.prompty --from-trace …" in told


def test_a_prompt_is_recorded_and_then_tested_offline(project: Path) -> None:
    out, _ = run(project, code=1)
    assert out == (
        "greet\n"
        "  ! greets by name\n"
        "      no recording matches this request: recordings/greet/greets-by-name.jsonl does not exist\n"
        "          Run `prompty test --record` to write greets-by-name.jsonl.\n"
        "  ! is short\n"
        "      no recording matches this request: recordings/greet/is-short.jsonl does not exist\n"
        "          Run `prompty test --record` to write is-short.jsonl.\n"
        "2 could not run\n"
    )
    recorded, _ = run(project, "--record", code=1)
    offline, _ = run(project, "greet.prompty", code=1)
    assert recorded == offline
    assert offline == (
        "greet\n  ✓ greets by name\n  ✗ is short\n      replay: expected length of at most 5, found 10\n"
        "1 passed, 1 failed\n"
    )
    assert run(project, "greet.test.yaml", "-k", "not style")[0] == "greet\n  ✓ greets by name\n1 passed\n"
    found = json.loads(run(project, "--json", "-k", "name")[0])
    assert (found["summary"]["passed"], found["results"][0]["runs"][0]["answer"]) == (1, "Hello Ada.")


def test_a_mistake_in_a_test_file_is_shown_with_its_place_and_its_fix(project: Path) -> None:
    (project / "greet.test.yaml").write_text("cases:\n  - name: a\n    expect: {render: {contians: x}}\n")
    _, err = run(project, code=1)
    assert "greet.test.yaml:3:23: error: cases.0.expect.render.contians: unknown key `contians`" in err
    assert "    Write `contains`.\n" in err


def test_what_is_no_test_is_told(project: Path) -> None:
    (project / "other.prompty").write_text(SCRIPTED)
    (project / "empty").mkdir()
    assert (
        "'other.prompty' has no tests\n    Write other.test.yaml with --init."
        in run(project, "other.prompty", code=1)[1]
    )
    assert "the folder 'empty' has no tests" in run(project, "empty", code=1)[1]
    assert "'x.txt' is not a test file" in run(project, "x.txt", code=1)[1]
    assert "matches none of the 2 cases" in run(project, "-k", "nothing", code=1)[1]
    assert "--level live calls models" in run(project, "--level", "live", code=1)[1]


def test_checks_of_a_named_file_run(project: Path) -> None:
    (project / "rules.py").write_text("def is_polite(answer, inputs):\n    return inputs['name'] in answer\n")
    (project / "greet.test.yaml").write_text(
        "cases: [{name: a, inputs: {name: Ada}, expect: {replay: {python: 'rules:is_polite'}}}]"
    )
    run(project, "--record", "--checks", "rules.py")
    assert "Add --checks rules.py" in run(project, code=1)[0]
    run(project, "--checks", "rules.py")


def test_the_example_works_as_its_page_says_after_its_prompt_was_edited(tmp_path: Path) -> None:
    """The commands are those of the page: record, and test in CI."""
    folder = Path(shutil.copytree(EXAMPLE, tmp_path / "project"))
    page = (folder / "README.md").read_text()
    prompt = folder / "refund.prompty"
    edited = prompt.read_text().replace("You answer", "You kindly answer")
    assert edited != prompt.read_text()
    prompt.write_text(edited)
    [in_ci] = re.findall(r"- run: prompty test (.+) --github", page)
    assert "matches this request" in run(folder, *in_ci.split(), code=1)[0]
    [record] = re.findall(r"^prompty test (--record .+)$", page, re.MULTILINE)
    run(folder, *record.split())
    run(folder, *in_ci.split())


def write_live_project(folder: Path, url: str, cases: int) -> None:
    (folder / "ask.prompty").write_text(PROMPT.format(url=url, more=""))
    rows = "".join(
        f"  - {{name: n{number}, inputs: {{q: n{number}}}, expect: {{replay: {{contains: answer n{number}}}}}}}\n"
        for number in range(cases)
    )
    (folder / "ask.test.yaml").write_text(f"cases:\n{rows}")


def test_an_interrupt_lets_running_cases_end_and_says_how_to_continue(tmp_path: Path) -> None:
    with Hostile(seconds=0.3) as provider:
        write_live_project(tmp_path, provider.url, 40)
        process = start(tmp_path, "--live", "-j", "2")
        until(lambda: provider.asked.total() > 0)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
        assert process.returncode == 130, out + err
        assert "Stopping when the running cases have ended" in err
        assert "To continue: prompty test --live -j 2" in err
        provider.seconds = 0.01
        asked = provider.asked.total()
        out, err = run(tmp_path, "--live", "-j", "2")
    assert provider.asked.total() == 40
    assert f"{asked} results are from the interrupted run." in err
    assert out.endswith("40 passed\n")


def git(folder: Path, *words: str) -> None:
    program, name = shutil.which("git") or "git", ["-c", "user.name=x", "-c", "user.email=x@example.com"]
    subprocess.run([program, *name, *words], cwd=folder, check=True, capture_output=True)  # noqa: S603  our own words


def test_a_baseline_and_a_git_reference_tell_what_got_worse(project: Path) -> None:
    run(project, "--record", code=1)
    run(project, "--update")
    assert json.loads((project / "greet.baseline.json").read_text())["cases"] == {
        "greets by name": "passed",
        "is short": "failed",
    }
    out, _ = run(project)
    assert "  ✗ is short  also failed before\n" in out
    assert "Compared with the baseline: 0 worse, 0 better, of 2 cases." in out
    git(project, "init", "-q", ".")
    git(project, "add", "-A")
    git(project, "commit", "-qm", "first")
    (project / "greet.prompty").write_text(
        SCRIPTED.replace("Hello Ada.", "Hi Ada.").replace("Greet {{", "Please greet {{")
    )
    run(project, "--record", code=1)
    out, _ = run(project, "--against", "HEAD", "--html", "page.html", "--junit", "junit.xml", code=1)
    assert "  ✗ greets by name  passed before\n" in out
    assert "Compared with HEAD: 1 worse, 0 better, of 2 cases." in out
    assert (project / "page.html").read_text().startswith("<!DOCTYPE html>")
    assert "greets by name" in (project / "junit.xml").read_text()
    assert "git has no 'nothing'" in run(project, "--against", "nothing", code=1)[1]
    assert "is not a git reference" in run(project, "--against=--output=x", code=1)[1]


@pytest.mark.parametrize("words", [[], ["--baseline", "all.json"]], ids=["beside", "named"])
def test_a_baseline_forgets_deleted_cases_if_the_file_runs_as_a_whole(project: Path, words: list[str]) -> None:
    run(project, "--record", code=1)
    path = project / (words[-1] if words else "greet.baseline.json")
    run(project, "--update", *words)
    (project / "greet.test.yaml").write_text(TESTS.replace("is short", "is brief"))
    run(project, "--update", "-k", "name", *words)
    names = [key.removeprefix("greet::") for key in json.loads(path.read_text())["cases"]]
    assert names == ["greets by name", "is short"]
    run(project, "--update", *words)
    names = [key.removeprefix("greet::") for key in json.loads(path.read_text())["cases"]]
    assert names == ["greets by name", "is brief"]


def test_cases_without_recordings_on_one_side_need_a_live_run(project: Path) -> None:
    git(project, "init", "-q", ".")
    git(project, "add", "-A")
    git(project, "commit", "-qm", "without recordings")
    (project / "greet.prompty").write_text(SCRIPTED.replace("Greet {{", "Please greet {{"))
    run(project, "--record", code=1)
    out, _ = run(project, "--against", "HEAD", code=1)
    assert "No result can be compared with HEAD: none has a verdict in both runs. Record answers" in out
    assert "For a version without recordings, add --live." in out
    out, _ = run(project, "--against", "HEAD", "--live")
    assert "Compared with HEAD: 0 worse, 0 better, of 2 cases." in out


def test_the_summary_of_a_github_job_grows(project: Path) -> None:
    run(project, "--record", code=1)
    assert "--github needs the variable GITHUB_STEP_SUMMARY" in run(project, "--github", code=1)[1]


def test_quiet_prints_only_what_failed_or_flipped_and_totals(project: Path) -> None:
    failing = "  ✗ greet::is short\n      replay: expected length of at most 5, found 10\n"
    run(project, "--record", code=1)
    assert run(project, "-q", code=1)[0] == f"Failed\n{failing}1 passed, 1 failed\n"
    run(project, "--update")
    out, _ = run(project, "--quiet")
    assert out.startswith("Compared with the baseline: 0 worse")
    assert out.endswith("1 passed, 1 failed as before\n")
    baseline = (project / "greet.baseline.json").read_text()
    (project / "greet.baseline.json").write_text(baseline.replace("passed", "X").replace("failed", "passed"))
    (project / "greet.baseline.json").write_text((project / "greet.baseline.json").read_text().replace("X", "failed"))
    out, _ = run(project, "-q", code=1)
    assert out.startswith(f"Worse\n{failing}Better\n  ✓ greet::greets by name\nCompared with")
    (project / "recordings" / "greet" / "is-short.jsonl").unlink()
    out, _ = run(project, "-q", "-k", "short", code=1)
    assert out.startswith("Could not run\n  ! greet::is short\n      no recording matches")


def test_what_failed_runs_again_alone(project: Path) -> None:
    run(project, "--record", code=1)
    expected = "greet\n  ✗ is short\n      replay: expected length of at most 5, found 10\n1 failed\n"
    assert run(project, "--failed", code=1)[0] == expected
    assert run(project, "greet.prompty", "--failed", code=1)[0] == expected
    run(project, "-k", "name")  # what did not run is not forgotten
    assert run(project, "--failed", code=1)[0] == expected
    (project / "greet.test.yaml").write_text(TESTS.replace("max: 5", "max: 50"))
    assert run(project, "--failed")[0] == "greet\n  ✓ is short\n1 passed\n"
    out, told = run(project, "--failed")
    assert told == "No failures of these cases are known from an earlier run, so all of them run.\n"
    assert out.endswith("2 passed\n")
    (project / "recordings" / "greet" / "is-short.jsonl").unlink()
    run(project, code=1)
    assert run(project, "--failed", code=1)[0].endswith("1 could not run\n")


def test_an_accepted_failure_is_not_run_again_as_failed(project: Path) -> None:
    run(project, "--record", code=1)
    run(project, "--update")
    assert "No failures of these cases are known" in run(project, "--failed")[1]
    for file in (project / "state" / "prompty" / "tests").glob("*"):
        file.unlink()
    (project / "greet.baseline.json").unlink()
    run(project, code=1)
    [stored] = (project / "state" / "prompty" / "tests").iterdir()
    for text in ("{", "[]", '{"failed": 1}', '{"failed": [1]}'):
        stored.write_text(text)
        assert "No failures of these cases are known" in run(project, "--failed", code=1)[1]


def test_a_state_folder_that_cannot_be_written_fails_no_run(project: Path) -> None:
    (project / "state").write_text("a file")
    run(project, "--level", "render")


PROMPTS = {
    "text": ("inputs: {name: {kind: string}}", "Greet {{name}}.", "contains: text"),
    "example": ("inputs: {name: {kind: string, example: Ada}}", "Greet {{name}}.", "contains: Ada"),
    "default": ("inputs: {name: {kind: string, default: Bob}}", "Greet {{name}}.", "contains: Bob"),
    "no-inputs": ("metadata: {}", "Greet everybody: kindly.", "contains: 'Greet everybody: kindly.'"),
    "not-declared": ("metadata: {}", "Greet {{name}}.", "name: text"),
    "numbers": ("inputs: {n: {kind: integer}, m: {kind: float}, b: {kind: boolean}}", "{{n}} {{m}} {{b}}", "n: 1"),
    "choice": ("inputs: {tone: {kind: string, enumValues: [warm, cold]}}", "Be {{tone}}.", "contains: warm"),
    "list": ("inputs: {names: {kind: array, items: {kind: string}}}", "{% for n in names %}{{n}}{% endfor %}", "text"),
    "rich": ("inputs: {picture: {kind: image}, talk: {kind: thread}}", "Look: {{picture}}\n{{talk}}", "contains: "),
    "secret": ("inputs: {api_key: {kind: string, default: hunter2}}", "Say hello.", "contains: Say hello."),
    "reference": ("inputs: {name: {kind: string, example: '${file:note.txt}'}}", "Hi.", "contains: Hi."),
    "yaml": ("inputs: {name: {kind: string, example: 'a: [b] # c'}}", "Greet {{name}}.", "contains: 'a: [b] # c'"),
}


def test_init_writes_tests_that_pass_at_once_for_every_prompt(tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("${file:secret.txt}")  # as a text of a case, it would be read as a file
    for name, (inputs, body, _) in PROMPTS.items():
        head = f"---\nmodel: {{id: gpt-test, provider: openai}}\n{inputs}\n---\n"
        (tmp_path / f"{name}.prompty").write_text(f"{head}user:\n{body}\n")
    _, told = run(tmp_path, "--init", "text.prompty")
    assert told == "Wrote text.test.yaml. To run it: prompty test text.prompty\n"
    _, told = run(tmp_path, "--init")
    assert len(told.splitlines()) == len(PROMPTS) - 1
    out, _ = run(tmp_path)
    assert out.endswith(f"\n{len(PROMPTS)} passed\n")
    for name, (_, _, expected) in PROMPTS.items():
        text = (tmp_path / f"{name}.test.yaml").read_text()
        assert expected in text, text
        assert f"prompty test {name}.prompty --record" in text
        assert "hunter2" not in text
    assert "there is no prompt without tests here" in run(tmp_path, "--init", code=1)[1]


def test_init_overwrites_nothing_and_writes_through_no_link(project: Path) -> None:
    _, told = run(project, "--init", "greet.prompty", code=1)
    assert "greet.test.yaml already exists" in told
    assert (project / "greet.test.yaml").read_text() == TESTS
    (project / "greet.test.yaml").unlink()
    for target in (project / "elsewhere.yaml", project / "missing" / "elsewhere.yaml"):
        (project / "greet.test.yaml").symlink_to(target)
        assert "greet.test.yaml already exists" in run(project, "--init", "greet.prompty", code=1)[1]
        assert not target.exists()
        (project / "greet.test.yaml").unlink()


def test_init_says_what_it_needs_if_it_cannot_choose_inputs(tmp_path: Path) -> None:
    (tmp_path / "a.prompty").write_text(
        "---\nmodel: {id: m}\ninputs: {n: {kind: integer}}\n---\nuser:\n{{ 1 // (n - 1) }}\n"
    )
    _, told = run(tmp_path, "--init", "a.prompty", code=1)
    assert "prompty cannot choose inputs for a.prompty" in told
    assert "Add an `example:` to the inputs" in told
    assert not (tmp_path / "a.test.yaml").exists()


@pytest.mark.parametrize("quiet", [[], ["-q"]])
def test_an_uncalibrated_judge_fails_no_run_and_a_line_says_so(project: Path, quiet: list[str]) -> None:
    (project / "greet.prompty").write_text(SCRIPTED.replace("Hello Ada.", "pass"))
    labels = "".join(f"  - {{name: l{number}, inputs: {{name: Ada}}, label: pass}}\n" for number in range(2))
    (project / "greet.test.yaml").write_text(f"judge: {{}}\ncases:\n{labels}")
    run(project, "--record")
    out, _ = run(project, *quiet, "--junit", "junit.xml")
    assert "It is uncalibrated, and fails no case and no run: it has 2 labelled cases, but needs 20." in out
    assert 'failures="0"' in (project / "junit.xml").read_text()
