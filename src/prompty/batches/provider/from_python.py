"""Provider batches from Python: rows of a list, and results that are read back from the output."""

import json
from collections.abc import Iterable, Mapping
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from prompty.batches.job import BatchJob
from prompty.batches.ledger import Ledger, read_records
from prompty.batches.provider.run import ProviderBatch
from prompty.batches.records import PlannedRow
from prompty.batches.row_index import RowIndex, plan_rows
from prompty.drivers.run import AgentOrPath, Result, load_agent
from prompty.errors import ModelError, PromptyError, RequestError
from prompty.loop.options import Settings
from prompty.model.agent import PromptAgent
from prompty.model.citation import parse_citations, parse_provider_calls
from prompty.model.message import Usage
from prompty.pricing import get_pricer
from prompty.safety.write_files import create_files
from prompty.wire.structured import cast, find_result_schema

_OPTIONS = ("model", "options", "outputs_mode", "registry", "provider_tools")
Ended = Result[Any] | Exception


def run_rows(
    source: AgentOrPath,
    rows: Iterable[Mapping[str, object]],
    output: Path,
    output_type: type[Any] | None,
    options: Mapping[str, Any],
) -> list[tuple[Mapping[str, object], Ended]]:
    """Run rows in a provider's batches, and return the inputs and the end of each, in their order."""
    if unknown := [name for name in options if name not in _OPTIONS]:
        raise RequestError(f"`{unknown[0]}` has no effect in a provider batch", "Remove it, or provider_batch=True.")
    settings = Settings(**options)
    agent = load_agent(source, settings)
    schema = None if output_type is None else find_result_schema(agent, output_type)
    typed = agent.model_copy(update={"result_schema": schema}) if schema else agent
    with TemporaryDirectory() as folder:
        file = Path(folder) / "rows.jsonl"
        inputs = [_write_row(row) for row in rows]
        create_files({file: "".join(line for _, line in inputs).encode()})
        job = BatchJob(
            agent=typed,
            rows=file,
            numbers=range(1, len(inputs) + 1),
            output=output,
            tools=[],
            price=get_pricer(agent, required=False),
            max_concurrency=1,
            outputs_mode=settings.outputs_mode,
            provider_tools=settings.provider_tools,
        )
        with Ledger(output) as ledger:
            ledger.complete = ProviderBatch(job, ledger).run()
        with closing(RowIndex()) as index:
            ids = [
                planned.id for planned in plan_rows(file, typed, job.numbers, index) if isinstance(planned, PlannedRow)
            ]
    wanted, ends = set(ids), dict[str, Ended]()
    for path in (output, ledger.failures_path):
        for record in read_records(path) if path.exists() else ():
            if record["id"] in wanted:
                ends[record["id"]] = _read_end(record, output_type, agent)
    return [(row, ends[id]) for (row, _), id in zip(inputs, ids, strict=True)]


def _write_row(row: Mapping[str, object]) -> tuple[Mapping[str, object], str]:
    try:
        return row, json.dumps(dict(row), allow_nan=False) + "\n"
    except (TypeError, ValueError) as error:
        fix = "Pass text, numbers, lists and dicts: the rows of a provider batch outlive this process."
        raise RequestError(f"a row is not JSON: {error}", fix) from None


def _read_end(record: dict[str, Any], output_type: type[Any] | None, agent: PromptAgent) -> Ended:
    """Return the result of a record, or its error."""
    if error := record.get("error"):
        return (ModelError if error["class"] == "ModelError" else PromptyError)(error["message"])
    try:
        value = record["result"] if output_type is None else cast(record["result"], output_type)
    except PromptyError as misfit:
        return misfit
    return Result(
        value=value,
        messages=(),
        usage=Usage(**record["usage"]),
        finish_reason=None,
        model=record["model"] or agent.model.id,
        citations=parse_citations(record.get("citations") or ()),
        provider_calls=parse_provider_calls(record.get("providerCalls") or ()),
        _cost=None if record["cost"] is None else Decimal(str(record["cost"])),
    )
