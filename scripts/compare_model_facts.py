"""Compare facts/models.yaml with the newest SDKs: ids without a row, and dates that differ.

Installs the newest `openai`, `anthropic` and `genai-prices` into a fresh environment and reads their sources, without
importing them. It prints the differences and changes nothing.
"""

import ast
import re
import subprocess
import sys
import venv
from collections.abc import Iterator
from datetime import date, datetime
from importlib.metadata import distributions
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from scripts.verify_model_facts import EFFORTS, find, load

PACKAGES = ("openai", "anthropic", "genai-prices")
_SHUTDOWN = re.compile(r'- ((?:"[^"]+",?\s*)+):\s+Announced\s+shutdown\s+date:\s+(\d{4}-\d\d-\d\d)')
_ORDINAL = re.compile(r"(\d)(st|nd|rd|th)")


def install(folder: Path) -> Path:
    """Install the packages, and return their folder."""
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile", *PACKAGES]
    subprocess.run(command, check=True)  # noqa: S603  fixed arguments
    return next((folder / "lib").glob("python*/site-packages"))


def list_literals(file: Path) -> list[str]:
    """Return the texts in the first `Literal` of a module."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Subscript) and ast.unparse(node.value) == "Literal":
            return [str(entry.value) for entry in ast.walk(node.slice) if isinstance(entry, ast.Constant)]
    return []


def find_openai_ends(file: Path) -> dict[str, date]:
    text = file.read_text(encoding="utf-8")
    found = dict(_SHUTDOWN.findall(text))
    return {id: date.fromisoformat(day) for names, day in found.items() for id in re.findall(r'"([^"]+)"', names)}


def find_anthropic_ends(file: Path) -> dict[str, date]:
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "DEPRECATED_MODELS":
            days: dict[str, str] = ast.literal_eval(node.value)
            return {id: datetime.strptime(_ORDINAL.sub(r"\1", day), "%B %d, %Y").date() for id, day in days.items()}
    return {}


def compare(site: Path) -> Iterator[str]:
    """Yield the differences."""
    data = load()
    openai, anthropic = site / "openai" / "types" / "shared", site / "anthropic"
    yield from _compare_ids(data, "openai", list_literals(openai / "chat_model.py"))
    yield from _compare_ids(data, "anthropic", list_literals(anthropic / "types" / "model_param.py"))
    yield from _compare_ends(data, "openai", find_openai_ends(openai / "chat_model.py"))
    messages = anthropic / "resources" / "messages" / "messages.py"
    yield from _compare_ends(data, "anthropic", find_anthropic_ends(messages))
    efforts = [effort for effort in list_literals(openai / "reasoning_effort.py") if effort not in EFFORTS]
    yield from (f"openai: the effort '{effort}' is new" for effort in efforts)
    yield from _compare_prices(data, (site / "genai_prices" / "data.py").read_text(encoding="utf-8"))


def _compare_ids(data: dict[str, Any], host: str, ids: list[str]) -> Iterator[str]:
    if not ids:
        yield f"{host}: the SDK has no list of models where it was"
    yield from (f"{host}: {id} has no row" for id in ids if not find(data, host, id))


def _compare_ends(data: dict[str, Any], host: str, ends: dict[str, date]) -> Iterator[str]:
    if not ends:
        yield f"{host}: the SDK has no dates where it had them"
    for id, day in ends.items():
        ours = find(data, host, id).get("ends", {}).get("value")
        if ours != day:
            yield f"{host}: {id} ends on {day} by the SDK, and {f'on {ours}' if ours else 'at no time'} by the facts"


def _compare_prices(data: dict[str, Any], text: str) -> Iterator[str]:
    """Yield the current models that the list of prices does not mention."""
    for row in data["models"]:
        is_listed = row["host"] in ("openai", "anthropic") and "match" in row
        if is_listed and row["facts"].get("status", {}).get("value") == "current":
            yield from (f"prices: no mention of {id}" for id in row["examples"] if f"'{id}'" not in text)


def main() -> int:
    with TemporaryDirectory() as folder:
        site = install(Path(folder) / "newest")
        versions = sorted(
            f"{one.metadata['Name']} {one.version}"
            for one in distributions(path=[str(site)])
            if one.metadata["Name"] in (*PACKAGES, "genai_prices")
        )
        print(f"facts of {load()['checked']}, compared with {', '.join(versions)}")
        differences = list(compare(site))
    print("\n".join(differences) or "no differences")
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
