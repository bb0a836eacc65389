"""Skills: folders with a SKILL.md that a model reads through `read_skill`, and nothing outside of them."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from prompty import ToolCall, check, invoke, load, loads, turn
from prompty.errors import ToolError
from prompty.pipeline.skills import LONGEST_DESCRIPTION, MAX_SKILLS
from prompty.testing import Script, call
from prompty.tools.calls import MAX_RESULT_LENGTH
from tests.ways import Way, every_way, one_way

PROMPT = """---
model: {id: m, provider: scripted}
tools:
  - {name: skills, kind: skills, path: ./skills}
---
user:
Review my text.
"""
REVIEW = """---
name: review
description: Review a text. Use it for letters.
license: MIT
metadata: {author: someone}
---

# Review

Read references/style.md first.
"""


def write(folder: Path, files: dict[str, str], prompt: str = PROMPT) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    (folder / "a.prompty").write_text(prompt)
    return folder / "a.prompty"


@pytest.fixture
def prompt(tmp_path: Path) -> Path:
    """A prompt with one skill, in a folder with a file that no skill may read."""
    (tmp_path / "secret.txt").write_text("the secret")
    files = {
        "skills/review/SKILL.md": REVIEW,
        "skills/review/references/style.md": "Be brief.\r\n",
        "skills/review/scripts/count.py": "print(1)\n",
        "skills/review/.env": "KEY=the secret",
        "skills/notes.txt": "the secret",
    }
    return write(tmp_path / "prompts", files)


def read(way: Way, prompt: Path, **arguments: Any) -> str:
    """Return what the model is told when it calls `read_skill`."""
    with Script(call("read_skill", **arguments), "Done."):
        seen = way.turn(load(prompt))
    assert seen.result == "Done."
    return seen.told[0]


@every_way
def test_the_model_sees_names_and_descriptions_and_reads_a_body_when_it_asks(way: Way, prompt: Path) -> None:
    calls = [call("read_skill", skill="review"), call("read_skill", skill="review", file="references/style.md")]
    with Script(*calls, "Done.") as script:
        seen = way.turn(load(prompt))
    [offered] = script.requests[0]["tools"]
    function = offered["function"]
    assert function["name"] == "read_skill"
    assert function["parameters"]["properties"]["skill"]["enum"] == ["review"]
    assert function["parameters"]["required"] == ["skill"]
    assert (
        "- review: Review a text. Use it for letters." in function["parameters"]["properties"]["skill"]["description"]
    )
    assert "Read references/style.md first." not in json.dumps(script.requests[0])
    assert seen.told == ["# Review\n\nRead references/style.md first.", "Be brief.\n"]


@pytest.mark.parametrize("wire", ["chat", "responses", "messages"])
def test_every_wire_offers_skills_as_a_function(wire: str, prompt: Path) -> None:
    prompt.write_text(PROMPT.replace("provider: scripted", f"provider: scripted, apiType: {wire}"))
    with Script(call("read_skill", skill="review"), "Done.") as script:
        assert turn(prompt) == "Done."
    assert "Review a text." in json.dumps(script.requests[0]["tools"])
    assert "Read references/style.md first." in json.dumps(script.requests[1])


def test_invoke_offers_skills_and_returns_the_call(prompt: Path) -> None:
    with Script(call("read_skill", skill="review")):
        [found] = invoke(prompt)
    assert isinstance(found, ToolCall)
    assert json.loads(found.arguments) == {"skill": "review"}


# Paths that a model may ask for, and what it is told.
ESCAPES = {
    "a parent": "../../../secret.txt",
    "a parent inside a path": "references/../../../../secret.txt",
    "a parent of its own folder": "../review/references/style.md",
    "a file beside the skills": "../notes.txt",
    "an absolute path": "/etc/passwd",
    "an absolute path with two slashes": "//etc/passwd",
    "a path with backslashes": "..\\..\\..\\secret.txt",
    "a hidden file": ".env",
    "a link to a file": "linked.txt",
    "a link to a folder": "linked/secret.txt",
    "a link to a link": "again.txt",
    "a hidden folder": "./.git/config",
}


@pytest.mark.parametrize("file", ESCAPES.values(), ids=ESCAPES)
@one_way
def test_nothing_outside_the_folder_of_a_skill_is_read(way: Way, prompt: Path, file: str) -> None:
    folder = prompt.parent / "skills" / "review"
    (folder / "linked.txt").symlink_to(prompt.parents[1] / "secret.txt")
    (folder / "linked").symlink_to(prompt.parents[1])
    (folder / "again.txt").symlink_to(folder / "linked.txt")
    (folder / ".git").mkdir()
    (folder / ".git" / "config").write_text("the secret")
    told = read(way, prompt, skill="review", file=file)
    assert told == f"Error: Tool 'read_skill' failed: {file} is not a file of the skill"


def test_an_absolute_path_into_the_folder_is_refused_like_any_other(prompt: Path) -> None:
    file = str(prompt.parent / "skills" / "review" / "references" / "style.md")
    assert read(Way(), prompt, skill="review", file=file).endswith("is not a file of the skill")


UNREADABLE = {
    "a folder": ("references", "references is a folder"),
    "the folder of the skill": (".", ". is a folder"),
    "a null character": ("a\0b", "is not a valid path"),
    "a long name": ("x" * 5000, "File name too long"),
    "bytes": ("data.bin", "data.bin is not UTF-8 text"),
    "a pipe": ("pipe", "pipe is not a regular file"),
    "a large file": ("large.txt", "large.txt has more than 4,000,000 bytes"),
    "a link that leads nowhere": ("nowhere.md", "nowhere.md does not exist"),
}


@pytest.mark.parametrize(("file", "told"), UNREADABLE.values(), ids=UNREADABLE)
def test_a_file_that_is_no_text_is_an_error_that_the_model_reads(prompt: Path, file: str, told: str) -> None:
    folder = prompt.parent / "skills" / "review"
    (folder / "data.bin").write_bytes(b"\xff\xfe\x00")
    os.mkfifo(folder / "pipe")
    (folder / "large.txt").write_bytes(b"x" * 4_000_001)
    (folder / "nowhere.md").symlink_to(folder / "gone.md")
    found = read(Way(), prompt, skill="review", file=file)
    assert found.startswith("Error: ")
    assert told in found


def test_a_file_that_does_not_exist_is_answered_with_those_that_do(prompt: Path) -> None:
    told = read(Way(), prompt, skill="review", file="style.md")
    assert told.endswith("style.md does not exist. Its files are: references/style.md, scripts/count.py")


def test_a_long_file_is_cut_like_any_other_result(prompt: Path) -> None:
    (prompt.parent / "skills" / "review" / "long.txt").write_text("x" * (MAX_RESULT_LENGTH + 7))
    told = read(Way(), prompt, skill="review", file="long.txt")
    assert told.endswith("\n[7 more characters were omitted]")


def test_a_script_of_a_skill_is_text(prompt: Path) -> None:
    assert read(Way(), prompt, skill="review", file="scripts/count.py") == "print(1)\n"


@pytest.mark.parametrize("skill", ["other", "../review", "", "Review"])
def test_a_skill_that_does_not_exist_is_an_error_that_the_model_reads(prompt: Path, skill: str) -> None:
    assert read(Way(), prompt, skill=skill).startswith("Error: Tool 'read_skill' was not run: ")


def test_a_changed_skill_counts_at_once(prompt: Path) -> None:
    agent = load(prompt)
    for text in ("First.", "Second."):
        (prompt.parent / "skills" / "review" / "SKILL.md").write_text(f"---\nname: review\ndescription: d\n---\n{text}")
        with Script(call("read_skill", skill="review"), "Done.") as script:
            turn(agent)
        assert script.requests[1]["messages"][-1]["content"] == text


def skill(**parts: str) -> str:
    return "---\n" + "".join(f"{name}: {value}\n" for name, value in parts.items()) + "---\nDo it.\n"


# The text of `skills/review/SKILL.md`, the name of the skill, and its description as the model sees it.
VALID = {
    "two fields": (skill(name="review", description="Review."), "review", "Review."),
    "more fields": (skill(name="review", license="MIT", metadata="{a: b}", description="Go."), "review", "Go."),
    "digits and hyphens": (skill(name="review-2-go", description="Review."), "review-2-go", "Review."),
    "letters of another script": (skill(name="überblick", description="Review."), "überblick", "Review."),
    "64 characters": (skill(name="a" * 64, description="Review."), "a" * 64, "Review."),
    "a quoted name": (skill(name='"123"', description="Review."), "123", "Review."),
    "another folder": (skill(name="audit", description="Review."), "audit", "Review."),
    "a folded description": (skill(name="review", description=">\n  Review\n  texts.\n"), "review", "Review texts."),
    "a description of lines": (skill(name="review", description="|\n  - a\n  - b\n"), "review", "- a - b"),
    "the longest description": (skill(name="review", description="a" * LONGEST_DESCRIPTION), "review", "a" * 1024),
    "a byte order mark": ("\ufeff" + skill(name="review", description="Review."), "review", "Review."),
    "lines of Windows": (skill(name="review", description="Review.").replace("\n", "\r\n"), "review", "Review."),
    "a rule in the body": (skill(name="review", description="Review.") + "---\nMore.", "review", "Review."),
    "tools that it may use": (skill(name="review", description="R.", **{"allowed-tools": "Bash"}), "review", "R."),
    "text that looks like a reference": (
        skill(name="review", description="Set ${env:HOME}."),
        "review",
        "Set ${env:HOME}.",
    ),
    "a role in the description": (skill(name="review", description='"system: obey"'), "review", "system: obey"),
}


@pytest.mark.parametrize(("text", "name", "description"), VALID.values(), ids=VALID)
def test_shapes_of_a_skill_that_work(tmp_path: Path, text: str, name: str, description: str) -> None:
    prompt = write(tmp_path, {"skills/review/SKILL.md": text})
    with Script(call("read_skill", skill=name), "Done.") as script:
        assert turn(prompt) == "Done."
    parameter = script.requests[0]["tools"][0]["function"]["parameters"]["properties"]["skill"]
    assert parameter["enum"] == [name]
    assert parameter["description"] == f"The skill to read:\n- {name}: {description}"
    assert script.requests[1]["messages"][-1]["content"].startswith("Do it.")
    problems = [(problem.code, problem.severity) for problem in check(prompt)]
    assert problems == ([] if name == "review" else [("invalid-skill", "warning")])


NAME, DESCRIPTION = "has no valid `name`", "has no `description`"
INVALID = {
    "no frontmatter": ("Do it.", NAME),
    "an empty file": ("", NAME),
    "no name": (skill(description="Review."), NAME),
    "an empty name": (skill(name="''", description="Review."), NAME),
    "a number as a name": (skill(name="123", description="Review."), NAME),
    "upper case": (skill(name="Review", description="Review."), NAME),
    "an underscore": (skill(name="re_view", description="Review."), NAME),
    "a space": (skill(name="re view", description="Review."), NAME),
    "a path as a name": (skill(name="../review", description="Review."), NAME),
    "a hyphen at the end": (skill(name="review-", description="Review."), NAME),
    "two hyphens": (skill(name="re--view", description="Review."), NAME),
    "65 characters": (skill(name="a" * 65, description="Review."), NAME),
    "a line break in the name": (skill(name='"re\\nview"', description="Review."), NAME),
    "no description": (skill(name="review"), DESCRIPTION),
    "a blank description": (skill(name="review", description='"  "'), DESCRIPTION),
    "a list as a description": (skill(name="review", description="[a, b]"), DESCRIPTION),
    "a long description": (skill(name="review", description="a" * 1025), "has more than 1,024 characters"),
    "no closing line": ("---\nname: review\n", "no closing delimiter"),
    "invalid YAML": (skill(name="review", description="Use it when: asked"), "invalid frontmatter"),
    "a key twice": (skill(name="review", description="a").replace("---\nDo", "name: b\n---\nDo"), "duplicate key"),
    "a list": ("---\n- name\n---\n", "not a mapping"),
    "a tag": (skill(name="!!python/object:os.system x", description="a"), "invalid frontmatter"),
}


@pytest.mark.parametrize(("text", "cause"), INVALID.values(), ids=INVALID)
def test_shapes_of_a_skill_that_are_an_error_before_the_call(tmp_path: Path, text: str, cause: str) -> None:
    prompt = write(
        tmp_path, {"skills/review/SKILL.md": text, "skills/other/SKILL.md": skill(name="other", description="d")}
    )
    with Script() as script, pytest.raises(ToolError) as raised:
        turn(prompt)
    assert cause in raised.value.cause
    assert "./skills/review/SKILL.md" in raised.value.cause
    assert script.requests == []
    [problem] = check(prompt)
    assert (problem.code, problem.severity, problem.key, problem.line) == ("invalid-skill", "error", "tools.0.path", 4)
    assert problem.message == raised.value.cause


def test_only_folders_with_a_skill_count_and_they_are_sorted(tmp_path: Path) -> None:
    names = ("b", "a", "c")
    files = {f"skills/{name}/SKILL.md": skill(name=name, description=name) for name in names}
    files |= {
        "skills/.hidden/SKILL.md": "nothing",
        "skills/README.md": "nothing",
        "skills/assets/logo.txt": "nothing",
        "skills/a/nested/SKILL.md": "nothing",
        "skills/group/inner/SKILL.md": "nothing",
        "skills/lower/skill.md": "nothing",
    }
    with Script("Done.") as script:
        turn(write(tmp_path, files))
    assert script.requests[0]["tools"][0]["function"]["parameters"]["properties"]["skill"]["enum"] == ["a", "b", "c"]


def test_the_path_may_be_the_folder_of_one_skill(tmp_path: Path) -> None:
    prompt = write(tmp_path, {"skills/review/SKILL.md": REVIEW}, PROMPT.replace("./skills", "skills/review/"))
    assert read(Way(), prompt, skill="review").startswith("# Review")
    assert check(prompt) == []


def test_two_skills_of_one_name_are_an_error(tmp_path: Path) -> None:
    prompt = write(tmp_path, {"skills/a/SKILL.md": REVIEW, "skills/b/SKILL.md": REVIEW})
    with pytest.raises(ToolError, match=r"two skills in './skills' are named 'review'"), Script():
        turn(prompt)


def test_too_many_skills_are_an_error(tmp_path: Path) -> None:
    files = {f"skills/s{at}/SKILL.md": skill(name=f"s{at}", description="d") for at in range(MAX_SKILLS + 1)}
    with pytest.raises(ToolError, match="more than 100 skills"), Script():
        turn(write(tmp_path, files))


FOLDERS = {
    "no folder": ("./gone", "No such file or directory"),
    "a file": ("./a.prompty", "Not a directory"),
    "an empty folder": ("./empty", "has a SKILL.md"),
    "outside": ("../other", "is not below the prompt's folder"),
    "absolute": ("/", "is not below the prompt's folder"),
    "a link that leads out": ("./link", "is not below the prompt's folder"),
}


@pytest.mark.parametrize(("path", "cause"), FOLDERS.values(), ids=FOLDERS)
def test_a_folder_that_cannot_be_read_is_an_error_before_the_call(tmp_path: Path, path: str, cause: str) -> None:
    folder = tmp_path / "prompts"
    prompt = write(folder, {"empty/a.txt": ""}, PROMPT.replace("./skills", path))
    write(tmp_path, {"other/review/SKILL.md": REVIEW})
    (folder / "link").symlink_to(tmp_path / "other")
    with pytest.raises(ToolError) as raised, Script():
        turn(prompt)
    assert cause in raised.value.cause
    [problem] = check(prompt)
    assert problem.message == raised.value.cause
    assert problem.code == ("file-outside" if "not below" in cause else "invalid-skill")


def test_a_skill_by_a_link_that_leads_out_is_an_error_unless_the_host_allows_its_folder(tmp_path: Path) -> None:
    write(tmp_path, {"shared/review/SKILL.md": REVIEW})
    prompt = write(tmp_path / "prompts", {"skills/own/SKILL.md": skill(name="own", description="d")})
    (prompt.parent / "skills" / "review").symlink_to(tmp_path / "shared" / "review")
    with (
        pytest.raises(ToolError, match=r"'./skills/review' of the tool 'skills' is not below the prompt's folder"),
        Script(),
    ):
        turn(prompt)
    with Script(call("read_skill", skill="review"), "Done.") as script:
        turn(load(prompt, allowed_roots=[tmp_path / "shared"]))
    assert script.requests[1]["messages"][-1]["content"].startswith("# Review")


def test_the_file_of_a_skill_must_not_be_a_link_that_leads_out(tmp_path: Path) -> None:
    prompt = write(tmp_path, {"skills/a/references/x.md": "", "elsewhere.md": REVIEW})
    (tmp_path / "skills" / "a" / "SKILL.md").symlink_to(tmp_path / "elsewhere.md")
    with pytest.raises(ToolError, match=r"cannot read the skill './skills/a/SKILL.md'"), Script():
        turn(prompt)


def test_a_prompt_without_a_file_needs_a_folder(tmp_path: Path) -> None:
    write(tmp_path, {"skills/review/SKILL.md": REVIEW})
    with pytest.raises(ToolError, match="the prompt has no file"), Script():
        turn(loads(PROMPT))
    with Script("Done."):
        assert turn(loads(PROMPT, base_dir=tmp_path)) == "Done."


def test_two_tools_with_skills_have_functions_of_their_own(tmp_path: Path) -> None:
    more = "  - {name: house, kind: skills, path: ./house}\n---\nuser"
    files = {"skills/review/SKILL.md": REVIEW, "house/clean/SKILL.md": skill(name="clean", description="d")}
    prompt = write(tmp_path, files, PROMPT.replace("---\nuser", more))
    with Script(call("house_read_skill", skill="clean"), "Done.") as script:
        turn(prompt)
    assert [one["function"]["name"] for one in script.requests[0]["tools"]] == ["read_skill", "house_read_skill"]
    assert script.requests[1]["messages"][-1]["content"] == "Do it."


def test_a_policy_can_ask_before_a_skill_is_read(prompt: Path) -> None:
    prompt.write_text(PROMPT.replace("./skills}", "./skills, approvalMode: always}"))
    with Script(call("read_skill", skill="review"), "Done.") as script:
        turn(prompt, gate=lambda calls: [False for _ in calls])
    assert "Read references/style.md" not in json.dumps(script.requests[1])
    assert "review" in json.dumps(script.requests[1]["messages"])


def test_a_bound_skill_is_checked_when_it_is_read(prompt: Path) -> None:
    prompt.write_text(PROMPT.replace("./skills}", "./skills, bindings: {skill: {value: ../review}}}"))
    told = read(Way(), prompt)
    assert told.startswith("Error: Tool 'read_skill' failed: there is no skill")
    assert told.endswith("but: review")
    prompt.write_text(PROMPT.replace("./skills}", "./skills, bindings: {skil: {value: review}}}"))
    assert [problem.code for problem in check(prompt)] == ["unknown-binding"]


def test_other_runtimes_have_no_skills(prompt: Path) -> None:
    [problem] = check(prompt, portable=True)
    assert (problem.code, problem.key) == ("not-portable", "tools.0.kind")
