"""What git says of a revision is not trusted: it may end early, be huge, or name what no system should write."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import IO

import pytest

from prompty.cases import revision
from prompty.cases.comparison import open_earlier
from prompty.cases.reading import read_suite
from prompty.cases.results import CaseRun, TrialResult
from prompty.cases.revision import find_repository, open_revision
from prompty.errors import RequestError

COMMIT = "c" * 40
PROMPT, OTHER = b"a" * 40, b"b" * 40


def entry(path: bytes, blob: bytes = PROMPT, mode: bytes = b"100644") -> bytes:
    return mode + b" blob " + blob + b"\t" + path + b"\0"


def said(commit: str = COMMIT, tree: bytes = b"", sizes: bytes = b"", contents: bytes = b"") -> dict[str, bytes]:
    """What each command of git says."""
    return {"rev-parse": f"{commit}\n".encode(), "ls-tree": tree, "--batch-check": sizes, "--batch": contents}


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    (tmp_path / ".git").mkdir()
    return tmp_path


def script_git(answers: Mapping[str, bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    class Scripted(revision._Git):
        @contextmanager
        def start(self, *words: str, names: Iterable[bytes] = ()) -> Iterator[IO[bytes]]:
            list(names)
            try:
                yield BytesIO(answers[words[0] if words[0] in answers else words[1]])
            except RequestError:
                raise
            except (EOFError, ValueError):
                raise self._explain(words[0], "") from None

    monkeypatch.setattr(revision, "_Git", Scripted)


def read(root: Path, answers: Mapping[str, bytes], monkeypatch: pytest.MonkeyPatch) -> tuple[list[str], dict[str, str]]:
    """Return the files that were written, and those that were skipped."""
    script_git(answers, monkeypatch)
    with open_revision(root, "HEAD") as found:
        assert found.commit == COMMIT
        files = [path.relative_to(found.folder).as_posix() for path in found.folder.rglob("*") if path.is_file()]
    assert not found.folder.exists()
    return sorted(files), found.skipped


def test_the_needed_files_are_written(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = entry(b"a.prompty") + entry(b"parts/_rules.md", OTHER) + entry(b"program.py") + entry(b"image.png")
    sizes = PROMPT + b" blob 2\n" + OTHER + b" blob 3\n"
    contents = PROMPT + b" blob 2\nhi\n" + OTHER + b" blob 3\nyes\n"
    files, skipped = read(repository, said(tree=tree, sizes=sizes, contents=contents), monkeypatch)
    assert (files, skipped) == (["a.prompty", "parts/_rules.md"], {})


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (entry(b"a.prompty", mode=b"120000"), "it is a link, or not a file"),
        (entry(b"../a.prompty"), "not every system allows its name"),
        (entry(b".git/a.md"), "not every system allows its name"),
        (entry(b"con.md"), "not every system allows its name"),
        (entry(b"a\xe2\x80\xae.md"), "not every system allows its name"),
        (entry(b"x/" * 600 + b"a.md"), "not every system allows its name"),
        (entry(b"READ.md") + entry(b"read.md"), "another file has its name"),
    ],
)
def test_a_name_that_is_no_file_of_a_prompt_is_skipped(
    line: bytes, reason: str, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes, contents = PROMPT + b" blob 2\n", PROMPT + b" blob 2\nhi\n"
    _, skipped = read(repository, said(tree=line, sizes=sizes, contents=contents), monkeypatch)
    assert [found for found in skipped.values() if reason in found]


@pytest.mark.parametrize(
    ("size", "reason"), [(b" blob 99999999\n", "it has 95 MiB"), (b" tree 2\n", "it is not a file")]
)
def test_a_size_is_asked_before_the_content(
    size: bytes, reason: str, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, skipped = read(repository, said(tree=entry(b"a.md"), sizes=PROMPT + size), monkeypatch)
    assert (files, skipped) == ([], {"a.md": reason})


@pytest.mark.parametrize(
    ("answers", "cause"),
    [
        (said(tree=entry(b"a.md")[:-1]), "git ls-tree: it ended early"),
        (said(tree=b"nonsense\0"), "git ls-tree: it ended early"),
        (said(tree=entry(b"a.md"), sizes=b"?\n"), "git cat-file: it ended early"),
        (said(tree=entry(b"a.md"), sizes=PROMPT + b" missing\n"), "not all of it is on this machine"),
        (said(tree=entry(b"a.md"), sizes=PROMPT + b" blob 2\n", contents=PROMPT + b" blob 3\n"), "it ended early"),
        (said(tree=entry(b"a.md"), sizes=PROMPT + b" blob 2\n", contents=PROMPT + b" blob 2\nh"), "it ended early"),
    ],
)
def test_a_git_that_ends_early_is_refused(
    answers: Mapping[str, bytes], cause: str, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(RequestError, match=cause):
        read(repository, answers, monkeypatch)


@pytest.mark.parametrize(
    ("limit", "value", "cause"),
    [
        ("MAX_ENTRIES", 1, "more than 1 files"),
        ("MAX_FILES", 1, "more than 1 files that prompts could read"),
        ("MAX_TOTAL", 1, "its files have 0 MiB, and the limit is 0 MiB"),
    ],
)
def test_a_revision_has_limits(
    limit: str, value: int, cause: str, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(revision, limit, value)
    sizes = PROMPT + b" blob 2\n" + OTHER + b" blob 3\n"
    with pytest.raises(RequestError, match=cause):
        read(repository, said(tree=entry(b"a.md") + entry(b"b.md", OTHER), sizes=sizes), monkeypatch)


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("fatal: lazy fetching disabled", "partial clone"),
        ("fatal: detected dubious ownership in repository", "another user's"),
        ("fatal: bad object", "git cat-file: fatal: bad object"),
    ],
)
def test_an_error_of_git_is_explained(text: str, cause: str, repository: Path) -> None:
    assert cause in str(revision._Git(repository, "HEAD")._explain("cat-file", text))
    assert "git has no 'HEAD'" in str(revision._Git(repository, "HEAD")._explain("rev-parse", ""))


def test_an_option_is_no_revision(repository: Path) -> None:
    with pytest.raises(RequestError, match="not a git reference"), open_revision(repository, "--output=x"):
        pass


def test_the_repository_is_the_nearest_folder_with_one(repository: Path) -> None:
    (repository / "prompts").mkdir()
    assert find_repository(repository / "prompts") == repository


def test_a_git_inside_the_repository_is_not_started(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = repository / "git"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(repository))
    with pytest.raises(RequestError, match="no git outside the repository"):
        revision._Git(repository, "HEAD")


def test_a_suite_runs_with_the_prompt_of_the_revision(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (repository / "a.prompty").write_text("---\nmodel: m\n---\nuser:\nnow", encoding="utf-8")
    (repository / "b.prompty").write_text("---\nmodel: m\n---\nuser:\nnew", encoding="utf-8")
    for name in ("a", "b"):
        (repository / f"{name}.test.yaml").write_text(
            "cases: [{name: one, expect: {render: {contains: x}}}]\n", encoding="utf-8"
        )
    suites = [read_suite(repository / f"{name}.test.yaml") for name in ("a", "b")]
    before = b"---\nmodel: m\n---\nuser:\nthen"
    size = b" blob %d\n" % len(before)
    tree = entry(b"a.prompty") + entry(b"parts/_rules.md", mode=b"120000")
    script_git(said(tree=tree, sizes=PROMPT + size, contents=PROMPT + size + before + b"\n"), monkeypatch)
    with open_earlier(suites, "HEAD", [repository / "shared"]) as earlier:
        assert [suite.prompt.read_bytes() for suite in earlier.suites] == [before]
        assert [root.name for root in earlier.roots] == ["shared", "shared"]
        failed = TrialResult("a", "one", "error", runs=(CaseRun(error=f"{earlier.trees[0].folder}/a.prompty is bad"),))
        results = earlier.build([failed])
        assert earlier.build([]).note == ""
    assert results.statuses == {failed.key: "error"}
    assert results.note.startswith("1 result could not run at HEAD. ")
    assert "a.prompty is bad" in results.note
    assert str(repository) not in results.note
    assert "Not read from HEAD: parts/_rules.md: it is a link" in results.note


def test_a_reference_without_the_prompts_is_an_error(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (repository / "a.prompty").write_text("---\nmodel: m\n---\nuser:\nnow", encoding="utf-8")
    (repository / "a.test.yaml").write_text("cases: [{name: one, expect: {render: {contains: x}}}]\n", encoding="utf-8")
    suites = [read_suite(repository / "a.test.yaml")]
    script_git(said(), monkeypatch)
    with pytest.raises(RequestError, match="none of these prompts exists at 'HEAD'"), open_earlier(suites, "HEAD"):
        pass
