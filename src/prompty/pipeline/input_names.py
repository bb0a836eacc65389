"""Find the inputs that a prompt uses: declared, in its template, or bound to tools."""

import re
from collections.abc import Callable, Mapping
from functools import lru_cache

from prompty.errors import RenderError
from prompty.model.agent import PromptAgent
from prompty.model.structure import mark
from prompty.renderers import RENDERERS

_TAG = re.compile(r"\{[{%][^{}]*")
_WORD = re.compile(r"\w+")


def find_input_names(agent: PromptAgent) -> frozenset[str] | None:
    """Return the names of all inputs that a prompt uses, or None if its template engine cannot tell."""
    engine = agent.registry[RENDERERS].get(agent.template.format.kind)
    find_variables = getattr(engine, "variables", None)
    used = _find_template_names(find_variables, agent.instructions) if find_variables else None
    if used is None:
        return None
    return used | {entry.name for entry in agent.inputs} | find_bound_names(agent)


def find_bound_names(agent: PromptAgent) -> frozenset[str]:
    """Return the names of the inputs that tools bind."""
    return frozenset(binding.input for tool in agent.tools for binding in tool.bindings.values() if binding.input)


@lru_cache(maxsize=256)
def _find_template_names(find_variables: Callable[[str], Mapping[str, int]], template: str) -> frozenset[str] | None:
    try:
        names = find_variables(mark(template))
    except RenderError:
        return None  # reported when it is rendered
    # An engine may omit names that can belong to a section's value, so every word of a tag also counts.
    return frozenset(names).union(*(_WORD.findall(tag) for tag in _TAG.findall(template)))
