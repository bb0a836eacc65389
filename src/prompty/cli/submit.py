"""`prompty submit`: queue a run for the workers."""

from typing import Annotated

from typer import Option

from prompty.cli.console import out
from prompty.cli.durable import DatabaseUrl, open_client
from prompty.cli.inputs import load_dotenv, read_pairs
from prompty.cli.options import ApiType, File, InputPairs, ModelId, ProviderKey, with_model
from prompty.pipeline.load import load
from prompty.safety.visible import visible


def submit(
    file: File,
    inputs: InputPairs = None,
    database: DatabaseUrl = None,
    run_id: Annotated[
        str | None, Option("--id", help="The id of the run. An existing run is not started again.")
    ] = None,
    priority: Annotated[int | None, Option(help="Run lower numbers first.")] = None,
    tool: Annotated[
        list[str] | None, Option(help="Offer a tool of the workers in addition to those in the file.")
    ] = None,
    approve: Annotated[bool, Option("--approve", help="Ask before every tool call, whatever the file says.")] = False,
    model: ModelId = None,
    provider: ProviderKey = None,
    api: ApiType = None,
) -> None:
    """Queue a run of FILE for the workers, and print its id."""
    load_dotenv(file)
    with open_client(database) as runtime:
        agent = with_model(load(file), model, provider, api)
        run = runtime.start(
            agent,
            read_pairs(agent, inputs or []),
            run_id=run_id,
            priority=priority,
            tools=tool,
            approval="always" if approve else None,
        )
        out.print(visible(run.id))
