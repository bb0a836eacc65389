"""When a person is asked about the tools of an MCP server: what the file says for each of them, and whether a
definition is still the one that was known.

A server can change what it says about a tool after people have come to trust it. So the first definition of every
tool is remembered by its hash; another one means that a person is asked until the host approves it.
"""

import json
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

from prompty.errors import ToolError

Pinned = dict[str, dict[str, str]]  # for each tool the hash that is approved, and the one seen last

_file_lock = threading.Lock()  # several servers may share a file


def policy_for(mode: object, name: str) -> object:
    """What `approvalMode` means for one tool of a server: a policy of `loop.approval`. What is unknown means always,
    and so does a tool that `specify` names in neither of its lists."""
    match mode:
        case None | "never" | "always":
            return mode
        case {"when": dict(), **others} if not others:
            return mode
        case {"kind": "never" | "always" as kind, **others} if not others:
            return kind
        case {"kind": "specify", **lists}:
            return _specified(lists, name)
    return "always"


def _specified(lists: Mapping[Any, Any], name: str) -> str:
    always = lists.get("alwaysRequireApprovalTools") or ()
    never = lists.get("neverRequireApprovalTools") or ()
    known = lists.keys() <= {"alwaysRequireApprovalTools", "neverRequireApprovalTools"}
    trusted = isinstance(always, list | tuple) and isinstance(never, list | tuple) and known
    return "never" if trusted and name in never and name not in always else "always"


class Pins:
    """The definitions of a server's tools that are known, in this process or in a file of the host."""

    def __init__(self, server: str, path: Path | None = None) -> None:
        self.server, self.path = server, path
        self._here: Pinned = {}

    def changed(self, hashes: Mapping[str, str]) -> set[str]:
        """The tools that are not what they were; those that are new are known from now on."""
        with _file_lock:
            whole, pinned = self._read()
            before = json.dumps(pinned, sort_keys=True)
            for name, seen in hashes.items():
                pinned[name] = {"approved": pinned.get(name, {}).get("approved", seen), "seen": seen}
            if json.dumps(pinned, sort_keys=True) != before:
                self._write(whole, pinned)
        return {name for name, seen in hashes.items() if pinned[name]["approved"] != seen}

    def approve(self) -> list[str]:
        """Take all definitions as they were last seen for good; gives the tools that had changed."""
        with _file_lock:
            whole, pinned = self._read()
            names = [name for name, one in pinned.items() if one["approved"] != one["seen"]]
            pinned.update({name: {"approved": one["seen"], "seen": one["seen"]} for name, one in pinned.items()})
            if names:
                self._write(whole, pinned)
        return names

    def _read(self) -> tuple[dict[str, Pinned], Pinned]:
        if self.path is None or not self.path.exists():
            return ({}, self._here) if self.path is None else ({}, {})
        try:
            whole = json.loads(self.path.read_text(encoding="utf-8"))
            pinned = {name: dict(one) for name, one in whole.get(self.server, {}).items()}
            if any(one.keys() != {"approved", "seen"} for one in pinned.values()):
                raise ValueError("it holds something else")
        except (OSError, ValueError, TypeError, AttributeError) as error:
            raise ToolError(
                f"the file '{self.path}' with the known tools of MCP servers cannot be read: {error}",
                "Remove it to have all tools taken as they are now, or restore it.",
            ) from error
        return whole, pinned

    def _write(self, whole: dict[str, Pinned], pinned: Pinned) -> None:
        if self.path is None:
            return
        draft = self.path.with_name(f"{self.path.name}.{uuid4().hex}")
        draft.touch(mode=0o600)
        draft.write_text(json.dumps({**whole, self.server: pinned}, indent=1, sort_keys=True), encoding="utf-8")
        draft.replace(self.path)
