"""Every prompt that we ship, with every model in the facts, sent to a server that refuses what providers refuse."""

import warnings
from collections import Counter
from collections.abc import Iterator
from datetime import date
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from prompty import PromptAgent, invoke, invoke_async
from prompty.analysis.models import find_model_problems
from prompty.errors import LoadError, ModelError, Problem, PromptyError, PromptyWarning
from prompty.model.connection import ApiKeyConnection
from prompty.model.content import AudioPart, FilePart, ImagePart
from prompty.model.property import Property
from prompty.model.tool import FunctionTool
from prompty.pipeline.frontmatter import open_document
from prompty.pipeline.load import read_agent
from prompty.pipeline.model_override import override_model
from prompty.pipeline.source_map import SourceMap
from prompty.registry import Registry
from scripts.pages import find_pages, read_blocks, save_block, save_page
from scripts.write_model_facts import load as load_facts
from tests.servers.rules import RefusedRequest
from tests.servers.rules_server import RulesServer

ROOT = Path(__file__).parents[2]
SHIPPED = ("docs", "examples", "benchmarks", "src/prompty/cli/templates")
CODES = {"model-refuses", "option-refused", "model-ends"}
_PIXEL = "data:image/png;base64,iVBORw0KGgo="
_VALUES: dict[str, object] = {
    "string": "text",
    "integer": 1,
    "float": 0.5,
    "boolean": True,
    "thread": [],
    "image": ImagePart(value=_PIXEL),
    "audio": AudioPart(value="data:audio/wav;base64,UklGRg=="),
    "file": FilePart(value="data:application/pdf;base64,JVBERi0="),
}


class Case(NamedTuple):
    """A prompt with a model. `findings` are what `check` says about the two."""

    file: str
    model: str
    agent: PromptAgent
    inputs: dict[str, object]
    findings: list[Problem]


class Verdict(NamedTuple):
    """What the server did: nothing, or a refusal that reached the caller. `repeated` is True if Responses was tried
    because the server asked for it."""

    refusal: RefusedRequest | None
    repeated: bool


@cache
def list_models() -> list[tuple[str, str]]:
    """Return the host and one id of each row."""
    return [(row["host"], row["examples"][0]) for row in load_facts()["models"]]


def list_files() -> Iterator[tuple[str, Path]]:
    """Yield all prompts that we ship: files, and blocks of pages, which are files until the next one is asked for."""
    for file in sorted(path for folder in SHIPPED for path in (ROOT / folder).rglob("*.prompty")):
        yield str(file.relative_to(ROOT)), file
    for page in find_pages():
        with TemporaryDirectory() as folder:
            save_page(page, Path(folder))
            for block in read_blocks(page):
                if block.title and block.title.endswith(".prompty"):
                    save_block(block, Path(folder))
                    yield f"{page.relative_to(ROOT)}:{block.line}", Path(folder, block.title)


@cache
def load_shipped() -> list[tuple[str, PromptAgent, SourceMap]]:
    """Return all prompts that we ship, but for those that cannot be loaded on purpose."""
    registry, found = Registry(), []
    for name, file in list_files():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PromptyWarning)
            try:
                agent = read_agent(file, (), registry)
            except LoadError:
                continue
        source_map = open_document(file.read_text(encoding="utf-8"), file.name).frontmatter.source_map
        found.append((name, _with_local_tools(agent), source_map))
    return found


def _with_local_tools(agent: PromptAgent) -> PromptAgent:
    """Replace tools that need a server or a file by functions of the same name."""
    tools = [
        tool if isinstance(tool, FunctionTool) else FunctionTool(name=tool.name, kind="function", parameters=())
        for tool in agent.tools
    ]
    return agent.model_copy(update={"tools": tuple(tools)})


def iterate_cases(today: date) -> Iterator[Case]:
    """Yield every prompt with every model."""
    for file, agent, source_map in load_shipped():
        inputs = {one.name: create_value(one) for one in agent.inputs if one.required or one.default is None}
        for host, id in list_models():
            chosen = choose(agent, host, id)
            findings = list(find_model_problems(chosen, source_map, today))
            found = [finding.problem for finding in findings if finding.problem.code in CODES]
            yield Case(file, f"{host}:{id}", chosen, inputs, found)


def choose(agent: PromptAgent, host: str, id: str) -> PromptAgent:
    """Return the agent with a model, as `--model` would. An Azure deployment says what it acts as."""
    if host != "azure":
        return override_model(agent, f"{host}:{id}")
    chosen = override_model(agent, "azure:deployed")
    connection = ApiKeyConnection(kind="key", endpoint="https://res.openai.azure.com")
    model = chosen.model.model_copy(update={"connection": connection})
    return chosen.model_copy(update={"model": model, "metadata": {**agent.metadata, "actsAs": f"azure:{id}"}})


def create_value(declared: Property) -> object:
    """Return a value for an input."""
    if declared.enum_values:
        return declared.enum_values[0]
    if declared.kind == "array":
        return [create_value(declared.items)] if declared.items else ["text"]
    if declared.kind == "object":
        return {one.name: create_value(one) for one in declared.properties or ()}
    return _VALUES.get(declared.kind, "text")


class Matrix:
    """Runs cases, and collects those where the server and `check` disagree."""

    def __init__(self, *, undecided: bool, today: date) -> None:
        self.counts: Counter[str] = Counter()
        self.unpredicted: list[str] = []
        self.accepted: list[str] = []
        self._undecided, self._today = undecided, today

    def judge(self, case: Case, verdict: Verdict | None) -> None:
        if verdict is None:
            self.counts["not sendable"] += 1
            return
        self.counts["requests"] += 1
        self.counts["repeated on Responses"] += verdict.repeated
        self.counts["first refused"] += verdict.repeated or verdict.refusal is not None
        if refusal := verdict.refusal:
            self.counts["refused"] += 1
            if not case.findings:
                self.unpredicted.append(f"{case.file} × {case.model}: {refusal.rule} {refusal.body}")
        errors = [problem for problem in case.findings if problem.severity == "error"]
        self.counts["with an error of check"] += bool(errors)
        if errors and not verdict.refusal:
            self.accepted.append(f"{case.file} × {case.model}: {errors[0].message}")

    def run(self, cases: Iterator[Case]) -> None:
        for case in cases:
            with self._serve(case) as server:
                call = partial(invoke, case.agent, case.inputs, extra_inputs="ignore")
                self.judge(case, _read(server, call))

    async def run_async(self, cases: Iterator[Case]) -> None:
        for case in cases:
            with self._serve(case) as server:
                task = invoke_async(case.agent, case.inputs, extra_inputs="ignore")
                self.judge(case, await _read_async(server, task))

    def _serve(self, case: Case) -> RulesServer:
        acts_as = str(case.agent.metadata.get("actsAs", "")).partition(":")[2]
        return RulesServer(undecided=self._undecided, today=self._today, deployments={"deployed": acts_as})


def _read(server: RulesServer, call: Any) -> Verdict | None:
    try:
        call()
    except ModelError:
        return _verdict(server, failed=True)
    except PromptyError:
        return None  # refused before anything was sent, for example audio to an API that takes none
    return _verdict(server, failed=False)


async def _read_async(server: RulesServer, task: Any) -> Verdict | None:
    try:
        await task
    except ModelError:
        return _verdict(server, failed=True)
    except PromptyError:
        return None
    return _verdict(server, failed=False)


def _verdict(server: RulesServer, *, failed: bool) -> Verdict:
    paths = [request.path for request in server.requests]
    return Verdict(server.refusals[-1] if failed and server.refusals else None, len(set(paths)) > 1)
