"""`prompty chat`: a conversation with an agent, in the terminal."""

import os
from pathlib import Path
from typing import Annotated

from typer import Option

from prompty.cli.console import fail
from prompty.cli.conversation import Conversation
from prompty.cli.functions import functions_from
from prompty.cli.inputs import load_dotenv, read_pairs
from prompty.cli.options import ApiType, File, InputPairs, ModelId, ProviderKey, TraceTo, start_tracing, with_model
from prompty.errors import PromptyError
from prompty.memory.sqlite import SqliteMemory
from prompty.pipeline.load import load


def chat(
    file: File,
    inputs: InputPairs = None,
    tools: Annotated[
        list[str] | None, Option("--tools", "-t", help="A Python file or module with functions marked @tool.")
    ] = None,
    session: Annotated[str | None, Option(help="Keep the conversation under this name, and go on with it.")] = None,
    database: Annotated[Path | None, Option(help="The file that conversations are kept in.")] = None,
    ask: Annotated[str | None, Option(help="The input that takes what you say.")] = None,
    approve: Annotated[
        bool, Option("--approve", help="Ask before every tool, not only where the file says so.")
    ] = False,
    model: ModelId = None,
    provider: ProviderKey = None,
    api: ApiType = None,
    trace: TraceTo = None,
) -> None:
    """Talk with the agent of FILE. /help says what else there is; Ctrl-C ends a turn, Ctrl-D the conversation."""
    load_dotenv(file)
    try:
        start_tracing(trace)
        agent = with_model(load(file), model, provider, api)
        conversation = Conversation(
            agent,
            read_pairs(agent, inputs or []),
            functions=functions_from(tools),
            store=SqliteMemory(database or default_database()),
            session=session,
            ask=ask,
            approval="always" if approve else None,
        )
    except PromptyError as error:
        fail(error)
    conversation.hold()


def default_database() -> Path:
    """Where people's programs keep such things."""
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "prompty" / "sessions.db"
