"""Comment the cases that changed on a pull request: `python3 comment_changes.py SUMMARY`.

SUMMARY is what `prompty test --github` wrote. Each pull request has one such comment, which later runs replace. If
nothing has changed, there is none. Used by `test_prompts.sh`; needs Python's standard library alone.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

MARK = "<!-- prompty test -->"
PAGE = 100


def comment(summary: str) -> None:
    """Write, replace or delete the comment."""
    pull = f"/repos/{os.environ['GITHUB_REPOSITORY']}/issues"
    comments = f"{pull}/{int(os.environ['PULL_REQUEST'])}/comments"
    earlier = find_comment(comments)
    changed = select_changes(summary)
    if earlier is None:
        if changed:
            send("POST", comments, {"body": f"{MARK}\n{changed}"})
    elif changed:
        send("PATCH", f"{pull}/comments/{earlier}", {"body": f"{MARK}\n{changed}"})
    else:
        send("DELETE", f"{pull}/comments/{earlier}")


def select_changes(summary: str) -> str:
    """Return the part before the tables, or nothing if it lists no case."""
    changes = summary.partition("\n| ")[0].strip()
    return changes if "\n### " in changes else ""


def find_comment(comments: str) -> int | None:
    """Return the id of the comment of an earlier run."""
    page = 1
    while True:
        found = send("GET", f"{comments}?per_page={PAGE}&page={page}")
        for one in found:
            if one["body"].startswith(MARK) and one["user"]["type"] == "Bot":
                return int(one["id"])
        if len(found) < PAGE:
            return None
        page += 1


def send(method: str, path: str, body: dict[str, str] | None = None) -> Any:
    """Call GitHub's API and return what it answers."""
    request = Request(  # noqa: S310  the URL is GitHub's own
        os.environ.get("GITHUB_API_URL", "https://api.github.com") + path,
        data=None if body is None else json.dumps(body).encode(),
        headers={"Authorization": f"Bearer {os.environ['TOKEN']}", "Accept": "application/vnd.github+json"},
        method=method,
    )
    with urlopen(request, timeout=30) as answer:  # noqa: S310  see above
        return json.loads(answer.read() or b"null")


if __name__ == "__main__":
    comment(Path(sys.argv[1]).read_text(encoding="utf-8"))
