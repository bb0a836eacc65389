"""Find the inputs that a prompt can use: those it declares, and those that its template or its tools read."""

from collections.abc import Callable, Mapping
from functools import lru_cache

from prompty.errors import RenderError
from prompty.model.agent import PromptAgent
from prompty.model.structure import mark


def find_input_names(agent: PromptAgent) -> frozenset[str] | None:
    """Return the names of all inputs that a prompt uses, or None if its template engine does not tell."""
    engine = agent.registry.renderers.get(agent.template.format.kind)
    find_variables = getattr(engine, "variables", None)
    used = _find_template_names(find_variables, agent.instructions) if find_variables else None
    if used is None:
        return None
    bound = (binding.input for tool in agent.tools for binding in tool.bindings.values() if binding.input)
    return used | {entry.name for entry in agent.inputs} | set(bound)


@lru_cache(maxsize=256)
def _find_template_names(find_variables: Callable[[str], Mapping[str, int]], template: str) -> frozenset[str] | None:
    try:
        return frozenset(find_variables(mark(template)))
    except RenderError:
        return None  # rendering says more about it
