"""Runs `program` in a process of its own, with providers and a collector on loopback."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from prompty.model.message import Json
from tests.loopback import Reply, Server
from tests.tracing.answers import Wire
from tests.tracing.collector import Collector, Span

ROOT = Path(__file__).parents[2]
BODY = "system:\nBe brief about {{ticket}}.\nuser:\n{{question}}"
INPUTS = {"question": "How is the weather?", "ticket": "ticket-of-Ada-77"}
CALLED = ("weather", "forecast")


@dataclass(kw_only=True)
class Step:
    """One call or turn of the program, and what its provider answers."""

    name: str
    replies: Sequence[Reply]
    model: Json
    base: str = "/v1"
    how: str = "turn"
    frontmatter: Json = field(default_factory=dict)
    body: str = BODY
    plan: Json = field(default_factory=dict)
    children: Sequence["Step"] = ()

    def write(self, folder: Path, url: str) -> Path:
        """The prompt as a file that leads to a server."""
        connection = {"kind": "key", "endpoint": url + self.base, "apiKey": "a-key-of-no-known-shape"}
        inputs = {"question": {"kind": "string"}, "ticket": {"kind": "string", "sensitive": True}}
        model = {"id": "asked-model", **self.model, "connection": connection}
        front = {"name": self.name, "inputs": inputs, **self.frontmatter, "model": model}
        for child in self.children:
            child.write(folder, url)
        path = folder / f"{self.name}.prompty"
        path.write_text(f"---\n{json.dumps(front, indent=1)}\n---\n{self.body}")
        return path


def turn_of(wire: Wire, name: str, *, streamed: bool, **parts: Any) -> Step:
    """A turn in which the model calls two tools and then answers."""
    options = parts.pop("options", {})
    model = {"provider": wire.provider, "apiType": wire.api_type, "options": options}
    plan = {"stream": streamed, "tools": CALLED, "inputs": INPUTS, **parts.pop("plan", {})}
    replies = {"replies": wire.replies(streamed=streamed), **parts}
    return Step(name=name, model=model, base=wire.base, plan=plan, **replies)


@dataclass
class Run:
    """A program that has ended: what it printed, and what the collector got."""

    collector: Collector
    results: dict[str, Any]
    errors: str
    ports: dict[str, int]
    digests: dict[str, str]

    def trace(self, name: str) -> list[Span]:
        """All spans of the trace in which a step's own span is, those that began first first."""
        root = self.root(name)
        return [span for span in self.collector.spans if span.trace == root.trace]

    def root(self, name: str) -> Span:
        """The span of a step itself."""
        titles = (f"invoke_agent {name}", f"invoke {name}")
        [found] = [span for span in self.collector.spans if span.name in titles]
        return found

    def named(self, step: str, start: str) -> list[Span]:
        """The spans of a step whose names start so; those of models in the order of their replies."""
        found = [span for span in self.trace(step) if span.name.startswith(start)]
        return sorted(found, key=lambda span: str(span.attributes.get("gen_ai.response.id")))


@contextmanager
def running(
    folder: Path, steps: Sequence[Step], *, environment: Mapping[str, str] | None = None, own: bool = False
) -> Iterator[Run]:
    """Run the program to its end."""
    with Collector() as collector, ExitStack() as servers:
        planned, ports, digests = [], {}, {}
        for step in steps:
            server = servers.enter_context(Server())
            server.answer(*step.replies)
            path = step.write(folder, server.url)
            ports[step.name] = server.port
            digests[step.name] = sha256(path.read_bytes()).hexdigest()
            planned.append({"file": str(path), "how": step.how, **step.plan})
        (folder / "plan.json").write_text(json.dumps({"steps": planned, "own": own}))
        tracing = {} if own else {"PROMPTY_TRACE": "otel"}
        where = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, **tracing, **(environment or {})}
        done = subprocess.run(  # noqa: S603  our own code
            [sys.executable, "-W", "error", "-m", "tests.tracing.program", str(folder / "plan.json")],
            env={**clean_environment(), **where},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            cwd=ROOT,
        )
        assert done.returncode == 0, done.stderr
        results = dict(zip([step.name for step in steps], json.loads(done.stdout), strict=True))
        yield Run(collector, results, done.stderr, ports, digests)


def clean_environment() -> dict[str, str]:
    """The environment without proxies, and without what would trace, or lead elsewhere."""
    ours = ("OTEL_", "PROMPTY_", "OPENAI_", "ANTHROPIC_", "AZURE_")
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(ours) and not name.lower().endswith("_proxy")
    }
