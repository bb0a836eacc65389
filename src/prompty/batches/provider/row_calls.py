"""Requests and results of single rows: the loop of `invoke`, interrupted at its call to the model.

The loop starts anew for the result, so nothing of a row is kept while the provider has it.
"""

from collections.abc import Mapping
from contextlib import closing
from typing import cast

from prompty.batches.job import BatchJob
from prompty.drivers.run import Invocation, assemble_run
from prompty.drivers.target import HttpTarget, describe_failure, resolve_base, resolve_target
from prompty.errors import ModelError, PromptyError, RequestError
from prompty.loop.effects import CallModel, Emit, Loop
from prompty.loop.options import Settings
from prompty.loop.turn import run_loop
from prompty.model.agent import PromptAgent
from prompty.model.connection import ReferenceConnection
from prompty.model.event import Done
from prompty.model.message import Reply
from prompty.model.paused import Paused
from prompty.model.request import WireRequest
from prompty.pipeline.places import place_error
from prompty.providers.aws import AwsSignature
from prompty.providers.endpoint import Endpoint
from prompty.safety.redaction import Redactor, current_redactor

_PROVIDERS = ("openai", "anthropic")
_APIS = ("chat", "responses", "embeddings", "messages")
_LIVE = "Run it without a provider batch."


class RowCalls:
    """The calls of a job's rows. `target` is the model, with its transport."""

    def __init__(self, job: BatchJob) -> None:
        self.agent: PromptAgent = job.agent
        self.target: HttpTarget = _find_target(job, self.agent)
        self.endpoint: Endpoint = _find_endpoint(self.target)
        self._settings = Settings(
            max_retries=0,
            extra_inputs="ignore",
            outputs_mode=job.outputs_mode,
            provider_tools=job.provider_tools,
        )

    def build_request(self, inputs: Mapping[str, object]) -> WireRequest:
        """Return the request that a live row would send."""
        with closing(self._start(inputs)) as loop:
            return _advance(loop).request

    def make_result(self, inputs: Mapping[str, object], answer: Reply | ModelError) -> Done:
        """Return the end of a row, or raise the error that a live row would end with."""
        with closing(self._start(inputs)) as loop:
            call = _advance(loop)
            try:
                if isinstance(answer, ModelError):
                    effect = loop.throw(describe_failure(answer, call, [self.target]))
                else:
                    effect = loop.send(answer)
                while isinstance(effect, Emit):
                    effect = next(loop)
            except StopIteration as end:
                return cast(Done, end.value)  # without tools, nothing pauses
            except PromptyError as error:
                place_error(error, self.agent)
                raise
        # the loop would call again: a fallback, or the rest of an answer that is not complete
        raise (
            answer
            if isinstance(answer, ModelError)
            else ModelError(
                f"the answer is not complete (`{answer.finish_reason}`), and a provider batch asks only once"
            )
        )

    def _start(self, inputs: Mapping[str, object]) -> Loop[Done | Paused]:
        invocation = Invocation(operation="invoke", source=self.agent, inputs=inputs, settings=self._settings)
        run = assemble_run(invocation, self.agent, Redactor(parent=current_redactor()))
        bases = [self.target.base, *(resolve_base(agent) for agent in run.agents[1:])]
        return run_loop(run.plan(bases, run.hooks(), observed=False), run.state)


def _advance(loop: Loop[Done | Paused]) -> CallModel:
    """Return the first call of a loop, which no tools come before."""
    effect: object = next(loop)
    while not isinstance(effect, CallModel):
        effect = next(loop)
    return effect


def _find_target(job: BatchJob, agent: PromptAgent) -> HttpTarget:
    """Return the model of a job. Raise RequestError if its provider could not run the rows in a batch."""
    if agent.tools or job.tools:
        raise RequestError("a provider batch runs no tools, but the prompt has some", f"{_LIVE} Live rows run tools.")
    model = agent.model
    if model.provider not in _PROVIDERS:
        known = " and ".join(_PROVIDERS)
        raise RequestError(f"the provider '{model.provider}' has no batches that prompty knows: {known} have", _LIVE)
    if isinstance(model.connection, ReferenceConnection):
        raise RequestError(
            "a client that a program registers (`kind: reference`) cannot submit a provider batch",
            "Write `kind: key` in the connection of the file.",
        )
    target = resolve_target(agent, is_async=False, offers_tools=False)
    if not isinstance(target, HttpTarget) or target.api.name not in _APIS:
        raise RequestError(f"requests of the type '{model.api_type}' cannot go into a provider batch", _LIVE)
    return target


def _find_endpoint(target: HttpTarget) -> Endpoint:
    endpoint = target.provider.endpoint(target.agent) if target.provider.endpoint else None
    if endpoint is None or isinstance(endpoint.credential, AwsSignature):
        raise RequestError("this server has no batches that prompty knows", _LIVE)
    return endpoint
