"""Record the inputs of a prompt in a trace, without those that must not show."""

from collections.abc import Mapping

from prompty.model.agent import PromptAgent
from prompty.model.secrets import secrets_in
from prompty.providers import tapped
from prompty.safety.redaction import MASK, is_credential_name, remember_secrets
from prompty.tracing.spans import Span


def record_inputs(span: Span, agent: PromptAgent, inputs: Mapping[str, object] | None) -> None:
    """Record inputs, with sensitive ones and those bound to tools masked."""
    taps = tapped()
    if not span.live and not taps:
        return
    given = dict(inputs or {})
    sensitive = {one.name for one in agent.inputs if one.sensitive}
    hidden = [value for name, value in given.items() if name in sensitive or is_credential_name(name)]
    hidden += [one.default for one in agent.inputs if one.sensitive]
    for tap in taps:
        tap.hide(hidden)
    if not span.live:
        return
    remember_secrets(secrets_in(agent))
    span.hide(hidden)
    bound = {binding.input for tool in agent.tools for binding in tool.bindings.values()}
    span.record("inputs", {name: MASK if name in sensitive | bound else value for name, value in given.items()})
