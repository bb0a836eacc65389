"""Load prompts as if no variable were set. They are set again before a call (F15)."""

import os
from collections.abc import Callable, Mapping
from typing import Any

from prompty import PromptAgent, Registry
from prompty.registry import DEFAULT

_KEPT = ("HOME", "PATH", "TMPDIR", "XDG_CONFIG_HOME", "XDG_STATE_HOME")


def without_variables(load: Callable[..., PromptAgent]) -> Callable[..., PromptAgent]:
    """Return `load` or `loads` with an empty environment, an empty `.env` and an empty `env=` while it runs."""

    def load_late(
        source: Any, *, env: Mapping[str, str] | None = None, registry: Registry = DEFAULT, **options: Any
    ) -> PromptAgent:
        given: dict[str, str] | None = None if env is None else {}
        variables, dotenv = dict(os.environ), registry.dotenv
        registry.dotenv = {}
        for name in variables.keys() - {*_KEPT}:
            del os.environ[name]
        try:
            return load(source, env=given, registry=registry, **options)
        finally:
            os.environ.update(variables)
            registry.dotenv = dotenv
            if given is not None:
                given.update(env or {})

    return load_late
