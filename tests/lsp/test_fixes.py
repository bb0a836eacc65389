"""Every quick fix, applied to its file, removes its finding and adds none of any code."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.lsp.client import Editor
from tests.lsp.corpus import BROKEN, HEAD, RIGHT, Sample

# Mistakes that are put into each right file in which their right form stands.
INJECTED = {
    "model:": ["modle:", "mdoel:", '"modle":'],
    "inputs:": ["input:", "inpust:"],
    "description:": ["descripton:", "desciption:"],
    "kind: string": ["kind: strnig", "kind: str", "kind: text", "type: string"],
    "kind: float": ["kind: number", "kind: flaot"],
    "kind: boolean": ["kind: bool", "kind: boolaen"],
    "kind: integer": ["kind: int", "kind: integr"],
    "provider: openai": ["provider: opnai", "provder: openai"],
    "parameters:": ["parameter:", "paramters:"],
    "bindings:": ["binding:"],
    "default:": ["defualt:"],
    "{{ who }}": ["{{ whoo }}", "{{ wo }}"],
    "user:": ["usr:", "User :", "human:"],
    "system:": ["sytem:"],
    "cases:": ["case:"],
    "inputs: {who: Ada}": ["input: {who: Ada}"],
    "name: shop": ["name: 12", "name: no"],
    "---\nsystem": ["+++\nsystem"],
}


def inject() -> dict[str, Sample]:
    samples = {f"broken: {name}": sample for name, sample in BROKEN.items()}
    for name, sample in RIGHT.items():
        text = sample.files[sample.main]
        for right, mistakes in INJECTED.items():
            for wrong in mistakes if right in text else ():
                changed = {**sample.files, sample.main: text.replace(right, wrong, 1)}
                samples[f"{name}: {wrong}"] = sample._replace(files=changed)
    samples["tabs"] = Sample("a.prompty", {"a.prompty": f"{HEAD}inputs:\n\twho: a\n---\nuser:\n{{{{ who }}}}\n"})
    return samples


SAMPLES = inject()


def count(editor: Editor) -> Counter[tuple[str, str]]:
    return Counter((uri, one["code"]) for uri, found in editor.diagnostics.items() for one in found)


@pytest.mark.slow
def test_every_quick_fix_removes_its_finding_and_adds_none(tmp_path: Path) -> None:
    fixed: Counter[str] = Counter()
    for number, (name, sample) in enumerate(SAMPLES.items()):
        file = sample.write(tmp_path / str(number))
        editor = Editor()
        uri = editor.open(file)
        text = editor.server.workspace.texts[uri]
        before = count(editor)
        for fix in ask_for_fixes(editor, uri, len(text.lines)):
            [target] = fix["edit"]["changes"]
            edits = fix["edit"]["changes"][target]
            ordered = sorted(edits, key=lambda edit: text.to_offset(edit["range"]["start"]), reverse=True)
            changes = [{"range": edit["range"], "text": edit["newText"]} for edit in ordered]
            editor.change(target, *changes)
            [code] = [one["code"] for one in fix["diagnostics"]]
            after = count(editor)
            assert after[target, code] < before[target, code], (name, fix)
            if not name.startswith("broken: "):  # where one mistake may hide another
                assert after <= before, (name, fix)
            fixed[code] += 1
            editor.change(uri, {"text": text.text})
            assert count(editor) == before
    assert sum(fixed.values()) > 100
    assert len(fixed) >= 8


def ask_for_fixes(editor: Editor, uri: str, lines: int) -> list[dict[str, Any]]:
    place = {"start": {"line": 0, "character": 0}, "end": {"line": lines, "character": 0}}
    params = {"textDocument": {"uri": uri}, "range": place, "context": {"diagnostics": []}}
    return list(editor.request("textDocument/codeAction", params))
