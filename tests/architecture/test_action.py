"""The CI kit: what `action.yml` runs, the hooks for pre-commit, and the program that saves an OpenAI eval."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from scripts.pages import read_blocks
from scripts.run_page import make_environment
from tests.loopback import Server, json_reply, reply

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[2]
ACTION = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
HOOKS = {hook["id"]: hook for hook in yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))}
PAGE = ROOT / "docs" / "how-to" / "test-in-ci.md"
CHANGES = {
    "for 30 days": "for 14 days",
    "so we can refund it. You get 40 EUR back.": "so it is too late. You had 99 days.",
}
NEW_CASE = """cases:
  - name: is new
    inputs: {question: Can I return order 7?}
    expect: {replay: {contains: order 7}}

"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return {
        **make_environment(tmp_path),
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md"),
        "GITHUB_REPOSITORY": "ada/shop",
        "OPTIONS": "--checks rules.py",
    }


@pytest.fixture
def shop(tmp_path: Path, environment: dict[str, str]) -> Path:
    """A repository with the example's prompt, its tests and its recordings."""
    folder = tmp_path / "shop"
    shutil.copytree(ROOT / "examples" / "prompt-tests", folder)
    for command in ("init --quiet --initial-branch main", "config user.name Ada", "config user.email ada@example.com"):
        run(f"git {command}", folder, environment)
    run("git add .", folder, environment)
    run("git commit --quiet --message shop", folder, environment)
    return folder


@pytest.fixture
def github(environment: dict[str, str]) -> Iterator[Server]:
    with Server() as server:
        environment |= {"GITHUB_API_URL": server.url, "PULL_REQUEST": "7", "TOKEN": "of-a-job"}
        yield server


def run(command: str, folder: Path, environment: dict[str, str], code: int = 0) -> str:
    done = subprocess.run(  # noqa: S603  our own commands
        shlex.split(command), cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def run_action(folder: Path, environment: dict[str, str], code: int = 0) -> str:
    return run(f"bash {ROOT / '.github' / 'test_prompts.sh'}", folder, environment, code)


def make_worse(folder: Path, environment: dict[str, str]) -> None:
    """Change the rule and the answers, record these, and add a case without a recording in front of the others."""
    prompt, tests = folder / "refund.prompty", folder / "refund.test.yaml"
    text = prompt.read_text()
    for before, after in CHANGES.items():
        assert before in text
        text = text.replace(before, after)
    prompt.write_text(text)
    run("prompty test --record --checks rules.py", folder, environment, code=1)
    tests.write_text(tests.read_text().replace("cases:\n", NEW_CASE))


def list_sections(summary: str) -> dict[str, list[str]]:
    """Return the cases below each heading, in their order."""
    found = re.findall(r"^### (.+)\n\n((?:- .+\n)+)", summary, re.MULTILINE)
    return {title: re.findall(r"^- \*\*(.+?)\*\*", cases, re.MULTILINE) for title, cases in found}


def test_the_summary_names_what_got_worse_first(shop: Path, environment: dict[str, str]) -> None:
    make_worse(shop, environment)
    run_action(shop, environment | {"AGAINST": "main"}, code=1)
    sections = list_sections(Path(environment["GITHUB_STEP_SUMMARY"]).read_text())
    assert list(sections) == ["Worse", "Could not run"]
    assert sections["Worse"] == [
        "refund::states the rule",
        "refund::looks up the order before it answers",
        "refund::is not talked into another rule",
    ]
    assert sections["Could not run"] == ["refund::is new"]


def test_a_good_change_passes_and_writes_no_comment(shop: Path, environment: dict[str, str], github: Server) -> None:
    rules = shop / "rules.py"
    rules.write_text(f'import os\nassert "TOKEN" not in os.environ\n{rules.read_text()}')
    github.answer(json_reply([]))
    run_action(shop, environment | {"AGAINST": "main"})
    assert "3 passed" in Path(environment["GITHUB_STEP_SUMMARY"]).read_text()
    assert [request.method for request in github.requests] == ["GET"]


def test_a_mistake_in_a_prompt_fails_the_job(shop: Path, environment: dict[str, str]) -> None:
    prompt = shop / "refund.prompty"
    prompt.write_text(prompt.read_text().replace("{{ question }}", "{{ question }} <b> {{ answr"))
    run_action(shop, environment, code=1)
    problems = Path(environment["GITHUB_STEP_SUMMARY"]).read_text().partition("## Problems")[2]
    assert f"refund.prompty:{len(prompt.read_text().splitlines())}:" in problems
    assert "&lt;b>" in problems


def test_the_changed_cases_become_a_comment(shop: Path, environment: dict[str, str], github: Server) -> None:
    make_worse(shop, environment)
    github.answer(json_reply([]), json_reply({"id": 11}, status=201))
    run_action(shop, environment | {"AGAINST": "main"}, code=1)
    read, written = github.requests
    assert read.path == "/repos/ada/shop/issues/7/comments?per_page=100&page=1"
    assert (written.method, written.path) == ("POST", "/repos/ada/shop/issues/7/comments")
    assert written.headers["authorization"] == "Bearer of-a-job"
    assert "refund::states the rule" in written.body["body"]
    assert "| file |" not in written.body["body"]


def test_later_runs_replace_the_comment_or_delete_it(
    tmp_path: Path, environment: dict[str, str], github: Server
) -> None:
    mark = "<!-- prompty test -->\n"
    theirs = {"id": 10, "body": mark, "user": {"type": "User"}}  # anyone can write the mark
    ours = {"id": 11, "body": mark, "user": {"type": "Bot"}}
    summary = tmp_path / "tests.md"
    command = f"{sys.executable} {ROOT / '.github' / 'comment_changes.py'} {summary}"

    summary.write_text("## Prompt tests\n\n1 failed\n\n### Worse\n\n- **a**\n")
    github.answer(json_reply([theirs] * 100), json_reply([ours]), json_reply({"id": 11}))
    run(command, tmp_path, environment)
    assert [request.method for request in github.requests] == ["GET", "GET", "PATCH"]
    assert github.requests[-1].path == "/repos/ada/shop/issues/comments/11"
    assert "- **a**" in github.requests[-1].body["body"]

    github.requests.clear()
    summary.write_text("## Prompt tests\n\n1 passed\n\n| file | results |\n")
    github.answer(json_reply([ours]), reply(b"", status=204))
    run(command, tmp_path, environment)
    assert [request.method for request in github.requests] == ["GET", "DELETE"]


def test_a_token_without_rights_changes_no_result(shop: Path, environment: dict[str, str], github: Server) -> None:
    github.answer(json_reply({"message": "Resource not accessible by integration"}, status=403))
    assert "::warning::" in run_action(shop, environment)


def test_the_action_runs_the_script_with_all_its_inputs() -> None:
    steps = ACTION["runs"]["steps"]
    texts = " ".join(str(value) for step in steps for value in step["env"].values())
    assert all(f"inputs.{name}" in texts for name in ACTION["inputs"])
    assert all("${{" not in step["run"] for step in steps)  # inputs are data and never part of a command
    assert ".github/test_prompts.sh" in steps[-1]["run"]
    script = (ROOT / ".github" / "test_prompts.sh").read_text(encoding="utf-8")
    assert all(f"{{{name}:-" in script for name in steps[-1]["env"])


def test_without_install_the_action_ends_and_says_what_to_write(tmp_path: Path, environment: dict[str, str]) -> None:
    assert "default" not in ACTION["inputs"]["install"]
    script = tmp_path / "install.sh"
    script.write_text(ACTION["runs"]["steps"][0]["run"])
    told = run(f"bash -e {script}", tmp_path, environment | {"INSTALL": "", "RUNNER_TEMP": str(tmp_path)}, code=1)
    [shown] = [step for step in read_workflow()["jobs"]["test"]["steps"] if "install" in step.get("with", {})]
    assert told.startswith("::error::")
    assert told.count("\n") == 1
    assert f"'{shown['with']['install']}'" in told
    assert not (tmp_path / "prompty").exists()


def test_no_module_of_the_checkout_runs_when_the_action_installs(tmp_path: Path, environment: dict[str, str]) -> None:
    (tmp_path / "checkout").mkdir()
    (tmp_path / "temporary").mkdir()
    for name in ("venv", "argparse", "logging", "pip", "typing"):
        (tmp_path / "checkout" / f"{name}.py").write_text(f"open({str(tmp_path / 'RAN')!r}, 'w').close()\n")
    (tmp_path / "install.sh").write_text(ACTION["runs"]["steps"][0]["run"])
    given = {"INSTALL": "--help", "RUNNER_TEMP": str(tmp_path / "temporary"), "PYTHONPATH": str(tmp_path / "checkout")}
    run(f"bash -e {tmp_path / 'install.sh'}", tmp_path / "checkout", environment | given)
    assert (tmp_path / "temporary" / "prompty" / "bin" / "python").exists()
    assert not (tmp_path / "RAN").exists()


def read_workflow() -> Any:
    [text] = [block.text for block in read_blocks(PAGE) if block.title == ".github/workflows/prompts.yml"]
    return yaml.safe_load(text)


def test_the_pages_name_inputs_and_hooks_that_exist() -> None:
    shown = {block.title or "": block.text for block in read_blocks(PAGE)}
    blocks = {title: yaml.safe_load(text) for title, text in shown.items() if title.startswith(".")}
    steps = read_workflow()["jobs"]["test"]["steps"]
    [ours] = [step for step in steps if step["uses"] == "OWNER/REPOSITORY@REV"]
    assert {"install"} <= set(ours["with"]) <= set(ACTION["inputs"])
    [repository] = blocks[".pre-commit-config.yaml"]["repos"]
    assert [hook["id"] for hook in repository["hooks"]] == list(HOOKS)
    text = PAGE.read_text(encoding="utf-8")
    assert [name for name in ACTION["inputs"] if f"| `{name}` |" not in text] == []


HOOK = """\
#!{python}
import re, subprocess, sys
staged = subprocess.run(["git", "diff", "--cached", "--name-only"], capture_output=True, text=True).stdout.split()
for entry, files, pass_filenames in {hooks!r}:
    chosen = [name for name in staged if re.search(files, name)]
    if chosen and subprocess.run([*entry.split(), *(chosen if pass_filenames else ())]).returncode:
        sys.exit(1)
"""


def test_the_hooks_stop_a_commit_with_a_mistake(shop: Path, environment: dict[str, str]) -> None:
    """A stand-in for pre-commit, which would install the package from the network, runs what the hooks say."""
    entries: list[tuple[Any, ...]] = []
    for hook, arguments in zip(HOOKS.values(), ("", " --checks rules.py"), strict=True):
        entries.append((hook["entry"] + arguments, hook["files"], hook.get("pass_filenames", True)))
    file = shop / ".git" / "hooks" / "pre-commit"
    file.write_text(HOOK.format(python=sys.executable, hooks=entries))
    file.chmod(0o755)
    commit = "git commit --quiet --all --message change"

    (shop / "README.md").write_text("nothing to check")
    assert "passed" not in run(commit, shop, environment)
    tests = shop / "refund.test.yaml"
    tests.write_text(tests.read_text() + "\n# one more line\n")
    assert "3 passed" in run(commit, shop, environment)
    prompt = shop / "refund.prompty"
    good = prompt.read_text()
    prompt.write_text(good.replace("{{ question }}", "{{ question | nope }}"))
    assert "No filter named" in run(commit, shop, environment, code=1)
    prompt.write_text(good.replace("30 days", "14 days"))
    assert "states the rule" in run(commit, shop, environment, code=1)
    assert len(run("git log --oneline", shop, environment).splitlines()) == 3


def test_rows_and_answers_of_an_openai_eval_become_cases(tmp_path: Path, environment: dict[str, str]) -> None:
    for block in read_blocks(ROOT / "docs" / "how-to" / "from-openai-evals.md"):
        if block.title:
            (tmp_path / block.title).write_text(block.text)
    rows = [{"text": "Stocks rise.", "label": "Business"}, {"text": "The cup final ends 2:1.", "label": "Sports"}]
    items = [
        {"id": f"item_{n}", "object": "eval.run.output_item", "datasource_item": row} for n, row in enumerate(rows)
    ]
    page = {"object": "list", "data": items, "first_id": "item_0", "last_id": "item_1", "has_more": False}
    with Server() as server:
        server.answer(json_reply({"id": "eval_abc", "object": "eval", "testing_criteria": []}), json_reply(page))
        environment |= {"OPENAI_BASE_URL": f"{server.url}/v1", "OPENAI_API_KEY": "sk-of-a-test"}
        run(f"{sys.executable} save_eval.py eval_abc run_abc", tmp_path, environment)
    assert [request.path for request in server.requests] == [
        "/v1/evals/eval_abc",
        "/v1/evals/eval_abc/runs/run_abc/output_items",
    ]
    assert json.loads((tmp_path / "eval.json").read_text())["id"] == "eval_abc"
    answers = [json.loads(line) for line in (tmp_path / "answers.jsonl").read_text().splitlines()]
    assert [answer["id"] for answer in answers] == ["item_0", "item_1"]
    run(f"{sys.executable} make_cases.py", tmp_path, environment)
    assert "no problems" in run("prompty check topic.prompty", tmp_path, environment)
    assert "2 could not run" in run("prompty test topic.prompty", tmp_path, environment, code=1)  # nothing is recorded


def test_the_settings_of_a_prompt_object_are_saved_from_an_answer(tmp_path: Path, environment: dict[str, str]) -> None:
    blocks = {block.title: block.text for block in read_blocks(PAGE.with_name("from-openai-prompt-objects.md"))}
    (tmp_path / "save_prompt.py").write_text(blocks["save_prompt.py"])
    held = json.loads(blocks["object.json"])
    answer = {"id": "resp_abc", "object": "response", "created_at": 1.0, "output": [], "tool_choice": "auto"}
    answer |= {"prompt": {"id": "pmpt_abc", "version": "3", "variables": {"city": "Oslo"}}, "parallel_tool_calls": True}
    with Server() as server:
        server.answer(json_reply(answer | held))
        environment |= {"OPENAI_BASE_URL": f"{server.url}/v1", "OPENAI_API_KEY": "sk-of-a-test"}
        run(f"{sys.executable} save_prompt.py resp_abc", tmp_path, environment)
    assert [request.path for request in server.requests] == ["/v1/responses/resp_abc"]
    assert json.loads((tmp_path / "prompt.json").read_text()) == {"prompt": answer["prompt"], **held}


def test_the_file_of_a_prompt_object_sends_what_the_object_holds(tmp_path: Path, environment: dict[str, str]) -> None:
    page = PAGE.with_name("from-openai-prompt-objects.md")
    blocks = {block.title: block.text for block in read_blocks(page)}
    (tmp_path / "plan.prompty").write_text(blocks["plan.prompty"])
    held = json.loads(blocks["object.json"])
    told = run("prompty explain plan.prompty -i city={{city}} -i days={{days}} --json", tmp_path, environment)
    sent = json.loads(told)["body"]
    system, user = (message["content"][0]["text"] for message in held.pop("instructions"))
    assert (sent.pop("instructions"), sent.pop("input")) == (system, [{"role": "user", "content": user}])
    assert sent["text"]["format"].pop("name") == "structured_output"
    assert held["text"]["format"].pop("name") == "plan"
    assert sent == held
