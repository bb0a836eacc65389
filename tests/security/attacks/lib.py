"""What the scripts of a red team share: their own module, with a capture of what would leave that has today's names."""

import contextlib
import importlib.util
import json
import os
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import prompty
from prompty.model.request import WireRequest
from prompty.providers.http import client
from prompty.providers.http.network import Deadline


def _load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("red_team_lib", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_theirs = _load(Path(os.environ["RED_TEAM"], "lib.py"))
CLI, Server, answer, cli, folder = _theirs.CLI, _theirs.Server, _theirs.answer, _theirs.cli, _theirs.folder


@contextlib.contextmanager
def captured() -> Iterator[list[tuple[str, dict[str, str], str]]]:
    """Yield the URL, the headers and the body of what would have left the process. Nothing connects."""
    sent: list[tuple[str, dict[str, str], str]] = []

    def stop(self: Any, request: WireRequest) -> object:
        written = self._write(request, Deadline(1), client.write_body(request))
        url, headers = written.url, {name.decode(): value.decode() for name, value in written.headers}
        address = f"{url.scheme.decode()}://{url.host.decode()}{url.target.decode()}"
        sent.append((address, headers, json.dumps(request.body)))
        raise prompty.ModelError("stopped by the test")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(client.HttpTransport, "stream", stop)
        yield sent
