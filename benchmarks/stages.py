"""What the stages cost in a running process, measured in what they use: libyaml, Jinja2 and the file system."""

import os
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from timeit import Timer

import jinja2
import yaml

from benchmarks.cost import Cost, best_of
from benchmarks.prompts import CHAT, INPUTS, PARTIALS
from prompty import PromptAgent, load, prepare
from prompty.pipeline.frontmatter import split
from prompty.registry import DEFAULT, PromptCache

REPEATS = 100


def stage_costs(rounds: int) -> list[Cost]:
    """Loading, loading again, and preparing."""
    sides = {name: partial(seconds_per_call, action) for name, action in actions().items()}
    seconds = best_of(rounds, sides)
    return [
        ratio("load, cold", "yaml.load", 2, seconds),
        ratio("load, cached", "os.stat", 5, seconds),  # it looks at the file once
        ratio("prepare", "Template.render", 4, seconds),
        ratio("load, cached, with four partials", "os.stat", 10, seconds),  # and here at five
        ratio("prepare, with four partials", "prepare", 1.1, seconds),
    ]


def actions() -> dict[str, Callable[[], object]]:
    """Each stage, and the bare call that does the greatest part of its work."""
    frontmatter = split(CHAT.read_text(encoding="utf-8")).frontmatter or ""
    agent, composed = kept_agent(CHAT), kept_agent(PARTIALS)
    if composed.instructions != agent.instructions:
        raise RuntimeError(f"{PARTIALS.name} is not {CHAT.name} in parts")
    template = jinja2.Environment().from_string(agent.instructions)  # noqa: S701  a prompt is not HTML
    return {
        "load, cold": load_anew,
        "yaml.load": partial(yaml.load, frontmatter, yaml.CSafeLoader),
        "load, cached": partial(load, CHAT),
        "os.stat": partial(os.stat, CHAT),
        "prepare": partial(prepare, agent, INPUTS),
        "Template.render": partial(template.render, INPUTS),
        "load, cached, with four partials": partial(load, PARTIALS),
        "prepare, with four partials": partial(prepare, composed, INPUTS),
    }


def kept_agent(path: Path) -> PromptAgent:
    """The agent of the file; without the cache at work there would be no cached load to measure."""
    agent = load(path)
    if load(path) is not agent:
        raise RuntimeError(f"`load` did not keep {path.name}: was it changed less than 50 ms ago?")
    return agent


def load_anew() -> None:
    """Load with nothing remembered of this file. Others stay, because their cached load is measured beside it."""
    kept, DEFAULT.prompts = DEFAULT.prompts, PromptCache()
    load(CHAT)
    DEFAULT.prompts = kept


def seconds_per_call(action: Callable[[], object]) -> float:
    """The processor time of one call, from many."""
    return Timer(action, timer=time.process_time).timeit(REPEATS) / REPEATS


def ratio(name: str, bare: str, limit: float, seconds: Mapping[str, float]) -> Cost:
    """A stage's time over that of its bare call."""
    used = {side: seconds[side] for side in (name, bare)}
    return Cost(name=name, figure=used[name] / used[bare], unit=f"times {bare}", limit=limit, seconds=used)
