"""The site for programs: Markdown twins, `llms.txt`, and the skill in the wheel."""

import re
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

from prompty import check
from scripts.write_site_texts import SETTINGS, build_index, list_pages, write_texts

ROOT = Path(__file__).parents[2]
SKILL = ROOT / "src" / "prompty" / ".agents" / "skills" / "prompty" / "SKILL.md"
BLOCK = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)]+)\)")


def test_every_page_has_a_twin(tmp_path: Path) -> None:
    write_texts(tmp_path)
    for page in list_pages(SETTINGS["nav"]):
        text = (tmp_path / page).read_text(encoding="utf-8")
        assert text.startswith("# "), page


def test_llms_txt_lists_every_page_once_and_its_links_lead_to_twins(tmp_path: Path) -> None:
    write_texts(tmp_path)
    text = (tmp_path / "llms.txt").read_text(encoding="utf-8")
    assert text == build_index()
    assert text.startswith("# prompty for Python\n\n> ")
    links = LINK.findall(text)
    assert sorted(links) == sorted(list_pages(SETTINGS["nav"]))
    assert all((tmp_path / link).is_file() for link in links)


def save_prompts(folder: Path) -> list[Path]:
    found = [(title, text) for _, title, text in BLOCK.findall(SKILL.read_text(encoding="utf-8")) if title]
    for title, text in found:
        (folder / title).write_text(text, encoding="utf-8")
    return [folder / title for title, _ in found]


def test_the_prompts_of_the_skill_have_no_problems(tmp_path: Path) -> None:
    prompts = save_prompts(tmp_path)
    assert len(prompts) == 2
    assert [problem for prompt in prompts for problem in check(prompt) if problem.severity != "info"] == []


CODE = [text for language, _, text in BLOCK.findall(SKILL.read_text(encoding="utf-8")) if language == "python"]
COMMANDS = [
    line
    for language, _, text in BLOCK.findall(SKILL.read_text(encoding="utf-8"))
    if language == "sh"
    for line in text.splitlines()
]


@pytest.mark.process
@pytest.mark.parametrize("code", CODE, ids=[f"block {number}" for number, _ in enumerate(CODE)])
def test_the_code_of_the_skill_runs(code: str, tmp_path: Path) -> None:
    save_prompts(tmp_path)
    subprocess.run([sys.executable, "-W", "error", "-c", code], cwd=tmp_path, check=True, timeout=60)  # noqa: S603  our own code


@pytest.mark.process
@pytest.mark.parametrize("command", COMMANDS)
def test_the_commands_of_the_skill_run(command: str, tmp_path: Path) -> None:
    save_prompts(tmp_path)
    line = command.replace("prompty", f"{sys.executable} -m prompty", 1)
    subprocess.run(line, shell=True, cwd=tmp_path, check=True, timeout=60, stdout=subprocess.DEVNULL)  # noqa: S602  our own text


def test_the_skill_says_when_to_use_it_and_stays_short() -> None:
    text = SKILL.read_text(encoding="utf-8")
    assert re.match(r"---\nname: prompty\ndescription: .{50,400}\n---\n", text)
    assert len(text.splitlines()) < 150
    assert {language for language, _, _ in BLOCK.findall(text)} == {"prompty", "python", "sh"}


@pytest.mark.process
def test_the_wheel_has_the_skill(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "build", "--quiet", "--wheel", "--no-isolation", "--outdir", str(tmp_path), "."]
    subprocess.run(command, cwd=ROOT, check=True, timeout=120, capture_output=True)  # noqa: S603  our own package
    [wheel] = tmp_path.glob("*.whl")
    with ZipFile(wheel) as archive:
        assert "prompty/.agents/skills/prompty/SKILL.md" in archive.namelist()
