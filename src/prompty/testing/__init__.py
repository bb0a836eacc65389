"""Run prompts without a key or a network: with a scripted model, or with recordings of real ones.

Only the transport is replaced: the real providers' code builds the requests and parses the replies, in the formats of
chat, Responses and Messages. All of it works with every provider. Names are imported on first use, because pytest loads
this package in every project.
"""

from prompty.lazy import import_lazily

TYPE_CHECKING = False  # type checkers take it for true; importing it from typing would cost more than this module

if TYPE_CHECKING:
    from prompty.errors import RecordingMissing as RecordingMissing
    from prompty.testing.recordings import Player as Player, Recorder as Recorder
    from prompty.testing.script import (
        Fault as Fault,
        Script as Script,
        answer as answer,
        call as call,
        forbid_models as forbid_models,
        register_script as register_script,
    )

if not TYPE_CHECKING:  # a type checker that saw `__getattr__` would accept every name
    __getattr__, __dir__ = import_lazily(__name__)
