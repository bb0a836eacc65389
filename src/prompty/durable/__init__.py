"""Turns that survive their process: `prompty.durable.dbos` and `prompty.durable.temporal` run them inside your own
workflows of DBOS and Temporal. This module has what both share, and needs neither.
"""

from prompty.durable.record import DurableOptions, WorkerOptions
from prompty.durable.verdicts import verdict_from_json, verdict_to_json
from prompty.loop.policy import use_result

__all__ = ["DurableOptions", "WorkerOptions", "use_result", "verdict_from_json", "verdict_to_json"]
