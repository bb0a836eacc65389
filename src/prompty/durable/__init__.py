"""Durable runs: turns that survive their process (extra `dbos`).

`prompty.durable.dbos` and `prompty.durable.temporal` run turns inside your own workflows. `Runs` and `Worker` are for
programs that have no engine yet. Names are imported on first use, so workflows of Temporal need no DBOS, and a command
starts without it.
"""

from importlib import import_module

TYPE_CHECKING = False  # type checkers take it for true; importing it from typing would cost more than this module

if TYPE_CHECKING:
    from prompty.durable.notices import Webhook
    from prompty.durable.record import DurableOptions, WorkerOptions
    from prompty.durable.runs import RunEvent, Runs, RunSummary
    from prompty.durable.verdicts import verdict_from_json, verdict_to_json
    from prompty.durable.worker import Limits, Worker
    from prompty.loop.policy import use_result

_MODULES = {
    "prompty.durable.notices": "Webhook",
    "prompty.durable.record": "DurableOptions WorkerOptions",
    "prompty.durable.runs": "RunEvent RunSummary Runs",
    "prompty.durable.verdicts": "verdict_from_json verdict_to_json",
    "prompty.durable.worker": "Limits Worker",
    "prompty.loop.policy": "use_result",
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names.split()}

__all__ = [
    "DurableOptions",
    "Limits",
    "RunEvent",
    "RunSummary",
    "Runs",
    "Webhook",
    "Worker",
    "WorkerOptions",
    "use_result",
    "verdict_from_json",
    "verdict_to_json",
]

if not TYPE_CHECKING:  # a type checker that saw `__getattr__` would accept every name

    def __getattr__(name: str) -> object:
        module = _MODULE_OF.get(name)
        if module is None:
            raise AttributeError(f"module 'prompty.durable' has no attribute '{name}'")
        if name in ("Runs", "Worker"):
            import_module("prompty.extras").require("dbos", extra="dbos")
        value = globals()[name] = getattr(import_module(module), name)
        return value
