"""What a long run against the server came to, in `benchmarks/results/llama.json`."""

import fcntl
import json
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results" / "llama.json"
PACKAGES = ("prompty-runtime", "openai", "anthropic", "xllamacpp")


def record(case: str, *, seeds: int, requests: int, mismatches: int) -> None:
    """Put the figures of one case to those of the others, which another process may be writing."""
    with RESULTS.open("a+", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        cases = json.loads(file.read() or "{}").get("cases", {})
        cases[case] = {"seeds": seeds, "requests": requests, "mismatches": mismatches}
        file.truncate(0)
        file.write(report(cases))


def report(cases: dict[str, dict[str, int]]) -> str:
    content = {
        "date": datetime.now(UTC).date().isoformat(),
        "packages": {package: version(package) for package in PACKAGES},
        "requests": sum(figures["requests"] for figures in cases.values()),
        "mismatches": sum(figures["mismatches"] for figures in cases.values()),
        "cases": dict(sorted(cases.items())),
    }
    return json.dumps(content, indent=2) + "\n"
