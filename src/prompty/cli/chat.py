"""`prompty chat`: talk to an agent in the terminal."""

import os
from pathlib import Path
from typing import Annotated

from typer import Option

from prompty.cli.console import fail
from prompty.cli.conversation import Conversation
from prompty.cli.functions import ToolFiles, load_functions
from prompty.cli.inputs import load_dotenv, read_pairs
from prompty.cli.options import ApiType, File, InputPairs, ModelId, ProviderKey, TraceTo, start_tracing, with_model
from prompty.errors import PromptyError
from prompty.memory.sqlite import SqliteMemory
from prompty.pipeline.load import load


def chat(
    file: File,
    inputs: InputPairs = None,
    tools: ToolFiles = None,
    session: Annotated[str | None, Option(help="Save the conversation under this name, or continue it.")] = None,
    database: Annotated[Path | None, Option(help="The SQLite file with saved conversations.")] = None,
    ask: Annotated[str | None, Option(help="The input that receives your messages.")] = None,
    approve: Annotated[bool, Option("--approve", help="Ask before every tool call, whatever the file says.")] = False,
    model: ModelId = None,
    provider: ProviderKey = None,
    api: ApiType = None,
    trace: TraceTo = None,
) -> None:
    """Talk to the agent in FILE. Ctrl-C cancels a turn, Ctrl-D ends the conversation, /help lists commands."""
    load_dotenv(file)
    try:
        start_tracing(trace)
        agent = with_model(load(file), model, provider, api)
        conversation = Conversation(
            agent,
            read_pairs(agent, inputs or []),
            functions=load_functions(tools),
            store=SqliteMemory(database or get_default_database()),
            session=session,
            ask=ask,
            approval="always" if approve else None,
        )
    except PromptyError as error:
        fail(error)
    conversation.run()


def get_default_database() -> Path:
    """Return the sessions file in the user's state directory."""
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "prompty" / "sessions.db"
