"""Durable turns without their engine."""

import sys
from importlib import import_module

import pytest

from prompty.errors import MissingExtra


@pytest.mark.parametrize("engine", ["dbos", "temporalio"])
def test_an_engine_that_is_not_installed_is_a_missing_extra(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module = f"prompty.durable.{engine.removesuffix('io')}"
    for imported in [name for name in sys.modules if name.startswith(f"{engine}.")]:
        monkeypatch.delitem(sys.modules, imported)  # another test may have begun to import it
    monkeypatch.setitem(sys.modules, engine, None)
    monkeypatch.delitem(sys.modules, module, raising=False)
    with pytest.raises(MissingExtra, match=f"`{engine}` is not installed. Run: pip install "):
        import_module(module)
