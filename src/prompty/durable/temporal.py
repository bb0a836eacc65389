"""Agent turns inside your own Temporal workflow.

    @workflow.defn
    class Refund:
        @workflow.run
        async def run(self, ticket: str) -> str:
            plan = await turn("triage.prompty", {"ticket": ticket})
            return await turn("refund.prompty", {"plan": plan}, deadline=timedelta(hours=1))

    client = await Client.connect("localhost:7233", plugins=[PromptyPlugin(tools=[look, pay])])
    worker = Worker(client, task_queue="refunds", workflows=[Refund])

The workflow runs the loop, which decides and nothing else. Its effects are activities of workers, where models, tools
and secrets are: `prompty.open` reads the agent and renders its messages, `prompty.step` performs a model call, a tool
call, or a function of the host. A call that must not be repeated has one attempt. If its worker dies, a person says
what it has done.

Any worker performs a step. It is sent the messages that are new; if it lacks others, it says so and gets them.
"""

from typing import Any, cast

from prompty.errors import MissingExtra, RequestError

try:
    from temporalio.client import WorkflowHandle, WorkflowQueryFailedError
except ModuleNotFoundError as _missing:
    raise MissingExtra("temporalio", "temporal") from _missing

from prompty.drivers.run import parse_decisions
from prompty.durable.envelope import unseal
from prompty.durable.temporal_worker import PromptyPlugin
from prompty.durable.temporal_workflow import ANSWER, PAUSED, STEER, get_key, turn
from prompty.durable.verdicts import verdict_to_json
from prompty.model.message import Json
from prompty.model.paused import Paused

__all__ = ["PromptyPlugin", "answer", "find_pause", "steer", "turn"]


async def find_pause(handle: WorkflowHandle[Any, Any]) -> Paused | None:
    """Return what a workflow waits for, if it waits for a person: of several pauses the one that has waited longest."""
    try:
        stored = await handle.query(PAUSED)
    except WorkflowQueryFailedError:
        return None  # it has had no turn yet
    return None if stored is None else Paused.from_json(cast(Json, unseal(stored, "a pause")))


async def answer(handle: WorkflowHandle[Any, Any], verdicts: object, *, paused: Paused | None = None) -> None:
    """Let a workflow that waits for a person go on. The first answer to a pause counts. By default, it is an answer to
    what `find_pause` returns."""
    paused = paused or await find_pause(handle)
    if paused is None:
        raise RequestError(f"the workflow '{handle.id}' does not wait for an answer", "Ask `find_pause`.")
    decisions = {key: verdict_to_json(one) for key, one in parse_decisions(paused, verdicts).items()}
    await handle.signal(ANSWER, args=[get_key(paused), decisions])


async def steer(handle: WorkflowHandle[Any, Any], text: str) -> None:
    """Send a message to the turn of a workflow that is under way with `steering=True`, or to its next one."""
    await handle.signal(STEER, text)
