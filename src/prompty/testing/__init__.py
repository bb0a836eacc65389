"""Run prompts without a key or a network: with a scripted model, or with recordings of real ones.

Only the transport is replaced: the real providers' code builds the requests and parses the replies, in the formats of
chat, Responses and Messages. All of it works with every provider. Names are imported on first use, because pytest loads
this package in every project.
"""

from importlib import import_module

TYPE_CHECKING = False  # type checkers take it for true; importing it from typing would cost more than this module

if TYPE_CHECKING:
    from prompty.errors import RecordingMissing
    from prompty.testing.provider import PROVIDER as PROVIDER
    from prompty.testing.recordings import Player, Recorder
    from prompty.testing.script import Fault, Script, answer, call, register_script

_MODULES = {
    "prompty.errors": "RecordingMissing",
    "prompty.testing.provider": "PROVIDER",
    "prompty.testing.recordings": "Player Recorder",
    "prompty.testing.script": "Fault Script answer call register_script",
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names.split()}

__all__ = [
    "Fault",
    "Player",
    "Recorder",
    "RecordingMissing",
    "Script",
    "answer",
    "call",
    "register_script",
]

if not TYPE_CHECKING:  # a type checker that saw `__getattr__` would accept every name

    def __getattr__(name: str) -> object:
        module = _MODULE_OF.get(name)
        if module is None:
            raise AttributeError(f"module 'prompty.testing' has no attribute '{name}'")
        value = globals()[name] = getattr(import_module(module), name)
        return value
