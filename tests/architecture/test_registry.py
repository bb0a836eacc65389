"""Names to implementations: registered, built in, or from an installed package."""

import sys
from pathlib import Path

import pytest

from prompty.errors import MissingExtra, UnknownName
from prompty.extras import require
from prompty.registry import Registry
from prompty.renderers import Renderer, renderers


def test_built_ins_are_found_by_name_and_only_those() -> None:
    registry: Registry[object] = Registry("thing", {"path": "pathlib:Path"})
    assert registry.get("path") is Path
    with pytest.raises(UnknownName, match="no thing is called 'os'"):
        registry.get("os")


def test_what_is_registered_wins_and_can_be_taken_back() -> None:
    registry: Registry[object] = Registry("thing", {"path": "pathlib:Path"})
    registry.register("path", "mine")
    assert registry.get("path") == "mine"
    registry.unregister("path")
    assert registry.get("path") is Path


@pytest.mark.usefixtures("clean_registries")
def test_an_installed_package_offers_a_renderer_by_entry_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = tmp_path / "shouting-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: shouting\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[prompty.renderers]\nshout = prompty_test_shouting:render\n")
    (tmp_path / "prompty_test_shouting.py").write_text(
        "def render(template, inputs, /, *, nonce='', strict=False):\n    return template.upper()\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    shout: Renderer = renderers.get("shout")
    assert shout("hello", {}) == "HELLO"
    assert "shout" in renderers.names()
    sys.modules.pop("prompty_test_shouting")


def test_a_missing_extra_says_what_to_install() -> None:
    with pytest.raises(MissingExtra, match=r"pip install 'prompty-runtime\[mcp\]'"):
        require("prompty_no_such_package.inner", extra="mcp")


def test_a_package_that_breaks_while_importing_is_not_called_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "prompty_test_broken.py").write_text("import prompty_no_such_package\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="prompty_no_such_package") as caught:
        require("prompty_test_broken", extra="x")
    assert not isinstance(caught.value, MissingExtra)
