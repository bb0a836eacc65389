"""The `prompty` command: start the command line, or explain why it cannot start."""

import sys
from json import dumps

from prompty_runtime.installation import Finding, inspect_installation


def main() -> None:
    """Run the `prompty` command."""
    if sys.argv[1:2] == ["doctor"] and (findings := [one for one in inspect_installation() if one.is_fatal]):
        _report(findings)  # without the package, parts of which are not ours
    try:
        from prompty.cli import main as start  # it fails if another distribution has overwritten the package
    except Exception:
        if not (findings := inspect_installation()):
            raise
        _report(findings)
    start()


def _report(findings: list[Finding]) -> None:
    if "--json" in sys.argv:
        print(dumps({"problems": [finding._asdict() for finding in findings]}, indent=2))  # noqa: T201  a command prints
    else:
        for finding in findings:
            print(f"problem: {finding.problem}\n    {finding.fix}", file=sys.stderr)  # noqa: T201  a command prints
    sys.exit(1)
