"""The scripts with which a red team attacked prompty, each with the outcome that it must have now.

They lie beside the checkout, and are read there. Each prints a line for each thing that it tried.
"""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence

import pytest

from tests.public_data import SHARED
from tests.tiers import ROOT

SCRIPTS = SHARED / "repro" / "redteam"
pytestmark = [
    pytest.mark.process,
    pytest.mark.slow,
    pytest.mark.skipif(not SCRIPTS.is_dir(), reason=f"the scripts are not there; put them into {SCRIPTS}"),
]


@pytest.fixture(autouse=True)
def time_limit() -> None:
    """Have no limit of a test beside that of the script."""


def run_script(name: str) -> list[str]:
    """Return the lines that a script prints, without continuations."""
    path = os.pathsep.join(map(str, (ROOT / "tests" / "security" / "attacks", ROOT / "src", SCRIPTS)))
    done = subprocess.run(  # noqa: S603  scripts of the project's own red team
        [sys.executable, str(SCRIPTS / f"{name}.py")],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path, "PYTHONSAFEPATH": "1", "RED_TEAM": str(SCRIPTS)},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return [line for line in done.stdout.splitlines() if line.strip()]


def every(pattern: str) -> Callable[[Sequence[str]], None]:
    """Return a check that each line of a script's output matches a pattern."""

    def check(lines: Sequence[str]) -> None:
        assert [line for line in lines if not re.search(pattern, line)] == []

    return check


def check_staged(lines: Sequence[str]) -> None:
    pairs = [line.partition(":")[2] for line in lines if line.startswith(("at once", "staged"))]
    assert pairs[::2] == pairs[1::2]
    assert len(pairs) == 6
    assert all("'system', 'You are evil" not in line and "__PROMPTY" not in line for line in lines)


def check_models(lines: Sequence[str]) -> None:
    own = ("-> http://localhost/", "-> https://api.groq.com/", "-> https://api.anthropic.com/")
    assert [where in line for where, line in zip(own, lines, strict=False)] == [True] * 3
    every(r" held: |-> ")(lines)
    assert not any("api.openai.com" in line for line in lines)


def check_links(lines: Sequence[str]) -> None:
    every(r"new outside: \[\] changed outside: \[\]|leads to: False|sent the file outside: False")(lines)
    assert len(lines) == 17


def check_endpoints(lines: Sequence[str]) -> None:
    """Only the path of the API is reached, below a path of the file."""
    reached = [found for line in lines for found in re.findall(r"\('POST', '([^']*)'\)", line)]
    assert set(reached) == {"/v1/chat/completions", "/admin;x/chat/completions"}
    private = [line for line in lines if re.match(r"https?://(10\.|169\.254|\[fd00)", line)]
    assert len(private) == 5
    every("held: ")(private)


def check_origins(lines: Sequence[str]) -> None:
    """A key goes nowhere that a file or `.env` picks. What `.env` holds as text is that file's own, unexpanded."""
    assert [line.split(" to ")[0] for line in lines if "sk-own-planted" in line and "python-dotenv" not in line] == []
    assert any("SENT Bearer ${OPENAI_API_KEY} to" in line for line in lines)


def check_programs(lines: Sequence[str]) -> None:
    """No program of the folder starts. Other lines try commands that the editor and the Action no longer run."""
    every("started core.fsmonitor of the folder: False|started: False|by git status: False")(
        [line for line in lines if line.startswith("test --")]
    )


def check_own_transport(lines: Sequence[str]) -> None:
    ours = [line for line in lines if "ours" in line]
    assert "['OK', 'OK', 'OK']" in ours[0]
    assert "[None, None]" in ours[1]
    assert "longer than 67,108,864 bytes" in ours[2]
    assert "did not answer in time" in " ".join(lines)
    assert ours[-1].endswith("proxy saw []")


@pytest.mark.parametrize(
    ("name", "check"),
    [
        ("c1_ci", every(r"command lines printed: \[\]")),
        ("f1_env", every("^held ")),
        ("f2_model_id", check_models),
        ("f3_stages", check_staged),
        ("f5_links", check_links),
        ("f5_trace", every("victim overwritten: False")),
        ("f6_programs", check_programs),
        ("f7_pkg", every("imported: False.*imported by `python -m prompty`: False")),
        ("h1_httpx", check_own_transport),
        ("j1_templates", every("sandbox probes, 0 bad|bombs; worst|role probes: 250 changed 0")),
        ("n1_files", every(r"held: |reads \.\./\.env: False|error: ")),
        ("p1_openapi", every(r"n=[23]: .*'done'|n=[459]: .*expands to more than 10,000")),
        ("p5_origins", check_origins),
        ("s1_ssrf", check_endpoints),
    ],
)
def test_an_attack_has_the_outcome_that_is_decided(name: str, check: Callable[[Sequence[str]], None]) -> None:
    lines = run_script(name)
    assert lines
    check([line for line in lines if not line.startswith("    ")])


def test_a_binding_is_the_word_of_the_caller() -> None:
    """The value of a variable reaches the caller's own function by design. Nothing reaches the host of the file."""
    assert "evil.example: stopped by the test" in run_script("b1_binding")[-1]


def test_no_offline_command_connects() -> None:
    assert [line for line in run_script("n2_offline") if "connected: [(" in line] == []
    assert [line for line in run_script("n2b_fetch") if "asks for: ['" in line] == []
    assert run_script("n3_lsp")[0] == "connected: []"
