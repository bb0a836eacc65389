"""`${file:}` and `${env:}` in hostile hands (F7, F8, SECURITY)."""

import os
from pathlib import Path

import pytest

from prompty import load, loads, render
from prompty.errors import LoadError
from prompty.pipeline.files import MAX_FILE_BYTES


@pytest.fixture
def app(tmp_path: Path) -> Path:
    (tmp_path / "secret.txt").write_text("the secret")
    folder = tmp_path / "app"
    folder.mkdir()
    (folder / "inside.txt").write_text("inside")
    return folder


def attempt(app: Path, reference: str, **options: object) -> str | None:
    (app / "p.prompty").write_text(f"---\ndescription: ${{file:{reference}}}\n---\n")
    return load(app / "p.prompty", **options).description  # type: ignore[arg-type]  # the options vary by test


def assert_refused(app: Path, reference: str, said: str = "outside allowed roots") -> None:
    with pytest.raises(LoadError, match=said) as caught:
        attempt(app, reference)
    assert "the secret" not in str(caught.value)


@pytest.mark.spec("003 §2.11", "a file reference may lead out of the folder")
def test_an_absolute_path_is_refused(app: Path) -> None:
    assert_refused(app, str(app.parent / "secret.txt"))


def test_an_absolute_path_is_refused_even_into_the_own_folder(app: Path) -> None:
    assert_refused(app, str(app / "inside.txt"))


@pytest.mark.spec("003 §2.11", "a file reference may lead out of the folder")
@pytest.mark.parametrize(
    "reference", ["../secret.txt", "sub/../../secret.txt", "./.././secret.txt", "../app/../secret.txt"]
)
def test_leaving_by_dots_is_refused(app: Path, reference: str) -> None:
    assert_refused(app, reference)


def test_whether_a_file_outside_exists_is_not_told(app: Path) -> None:
    assert_refused(app, "../there-is-no-such-file.txt")


def test_leaving_by_a_link_is_refused(app: Path) -> None:
    (app / "link.txt").symlink_to(app.parent / "secret.txt")
    assert_refused(app, "link.txt")


def test_leaving_by_a_link_to_a_folder_is_refused(app: Path) -> None:
    (app / "up").symlink_to(app.parent)
    assert_refused(app, "up/secret.txt")


def test_links_in_a_circle_are_refused(app: Path) -> None:
    (app / "a").symlink_to(app / "b")
    (app / "b").symlink_to(app / "a")
    with pytest.raises(LoadError):
        attempt(app, "a")


def test_a_link_that_stays_inside_is_followed(app: Path) -> None:
    (app / "link.txt").symlink_to(app / "inside.txt")
    assert attempt(app, "link.txt") == "inside"


def test_a_device_is_refused(app: Path) -> None:
    (app / "zero").symlink_to("/dev/zero")
    assert_refused(app, "zero")
    with pytest.raises(LoadError, match="not a regular file"):
        attempt(app, "/dev/zero", allowed_roots=["/dev"])


def test_a_pipe_is_refused_and_not_waited_for(app: Path) -> None:
    os.mkfifo(app / "pipe")
    assert_refused(app, "pipe", "not a regular file")


def test_a_huge_file_is_refused_unread(app: Path) -> None:
    with (app / "huge.txt").open("wb") as file:
        file.truncate(MAX_FILE_BYTES + 1)
    assert_refused(app, "huge.txt", "bytes")


def test_the_host_can_allow_another_folder(app: Path) -> None:
    assert attempt(app, "../secret.txt", allowed_roots=[app.parent]) == "the secret"
    assert attempt(app, str(app.parent / "secret.txt"), allowed_roots=[app.parent]) == "the secret"


def test_allowing_one_folder_allows_no_other(app: Path) -> None:
    (app.parent / "other").mkdir()
    with pytest.raises(LoadError, match="outside allowed roots"):
        attempt(app, "../secret.txt", allowed_roots=[app.parent / "other"])


def test_a_file_cannot_refer_on_to_other_files(app: Path) -> None:
    (app / "chain.json").write_text('"${file:../secret.txt}"')
    assert attempt(app, "chain.json") == "${file:../secret.txt}"


SECRET_FILE = """---
name: x
model:
  connection: {kind: key, endpoint: https://h, apiKey: "${env:KEY}"}
tools:
  - name: t
    kind: function
    bindings: {token: "${env:KEY}"}
---
Key: {{ model }} {{ tools }} {{ agent }} {{ env }} {{ self }}
"""


def test_a_secret_does_not_show_in_a_repr_a_dump_or_a_rendered_text() -> None:
    agent = loads(SECRET_FILE, env={"KEY": "hunter2-hunter2"})
    shown = [repr(agent), str(agent), agent.model_dump_json(), str(agent.model_dump()), render(agent)]
    assert not any("hunter2" in text for text in shown)


def test_a_secret_as_an_input_refuses_to_render() -> None:
    agent = loads(SECRET_FILE, env={"KEY": "hunter2-hunter2"})
    connection = agent.model.connection
    with pytest.raises(ValueError, match="is a secret"):
        render(agent, {"model": getattr(connection, "api_key", None)})
    with pytest.raises(ValueError, match="is a secret"):
        render(agent, {"model": {"nested": [agent.tools[0].bindings["token"].value]}})


WRONG = {
    "a list for a key": "model:\n  connection: {kind: key, apiKey: [sk-abcdefgh12345]}\n",
    "a key before broken yaml": "model:\n  connection:\n    apiKey: sk-abcdefgh12345: [\n",
    "a mapping for a secret": "model:\n  connection:\n    kind: oauth\n    clientSecret: {a: sk-abcdefgh12345}\n",
    "a key twice": "model:\n  connection:\n    apiKey: first\n    apiKey: sk-abcdefgh12345\n",
}


@pytest.mark.parametrize("frontmatter", WRONG.values(), ids=WRONG)
def test_a_mistake_beside_a_secret_is_told_without_the_secret(frontmatter: str) -> None:
    with pytest.raises(LoadError) as caught:
        loads(f"---\n{frontmatter}---\n")
    assert "abcdefgh" not in str(caught.value)
