"""Families of models: whose an id is, where the id alone says so.

OpenAI's is the provider of a prompt that names none. An id of another family must not send the prompt and the key
there: its author meant another company, or no company at all.
"""

import re

from prompty.errors import RequestError
from prompty.model.agent import PromptAgent
from prompty.providers import EXECUTORS, PROVIDERS
from prompty.providers.profiles import PROFILES, get_profile
from prompty.registry import Registry

# The tag of a local model, as in `llava:7b`, `mixtral:8x7b-instruct-q4_0` or `llama:latest`.
LOCAL_TAG = re.compile(
    r"latest|v\d+(?:\.\d+)*(?:-.*)?|(?:\d+x)?\d+(?:\.\d+)?[bm](?:-.*)?|q\d.*"
    r"|(?:instruct|chat|text|code)(?:-(?:q\d|v?\d|fp\d).*)?",
    re.IGNORECASE,
)
_FAMILIES = {
    "claude": "anthropic",
    "gemini": "gemini",
    "gemma": "ollama",
    "llama": "ollama",
    "codellama": "ollama",
    "llava": "ollama",
    "phi": "ollama",
    "qwen": "ollama",
    "qwq": "ollama",
    "mixtral": "mistral",
    "mistral": "mistral",
    "ministral": "mistral",
    "magistral": "mistral",
    "codestral": "mistral",
    "devstral": "mistral",
    "pixtral": "mistral",
    "deepseek": "deepseek",
    "grok": "xai",
    "command": "openrouter",
    "kimi": "openrouter",
    "glm": "openrouter",
}
_FAMILY = re.compile(rf"(?:{'|'.join(_FAMILIES)})(?=[-.:_\d]|\Z)", re.IGNORECASE)
_SHORTEST_PROVIDER = 4  # letters; a shorter name is near to many others
_MAX_EDITS = 2
_VENDOR = re.compile(r"[A-Za-z][\w.-]*/")


def find_misspelt(prefix: str, registry: Registry) -> str | None:
    """Return the provider or server that differs from a prefix in at most two letters. A short name or one with a
    number belongs to a model, as in `ft:…` or `llama3.2:3b`."""
    if len(prefix) < _SHORTEST_PROVIDER or not prefix.replace("-", "").replace(".", "").isalpha():
        return None
    servers = [profile.name for profile in PROFILES if get_profile(profile.name)]
    names = (*registry[PROVIDERS].names(), *registry[EXECUTORS].names(), *servers)
    near = min(names, key=lambda name: count_edits(prefix.lower(), name), default=None)
    return near if near and count_edits(prefix.lower(), near) <= _MAX_EDITS else None


def count_edits(first: str, second: str) -> int:
    """Return the number of letters to insert, remove, replace or swap to get from one word to the other."""
    rows = [list(range(len(second) + 1))]
    for i, letter in enumerate(first, 1):
        row = [i]
        for j, other in enumerate(second, 1):
            cost = min(rows[-1][j] + 1, row[-1] + 1, rows[-1][j - 1] + (letter != other))
            if i > 1 and j > 1 and letter == second[j - 2] and first[i - 2] == other:
                cost = min(cost, rows[-2][j - 2] + 1)
            row.append(cost)
        rows.append(row)
    return rows[-1][-1]


def refuse_family(agent: PromptAgent) -> RequestError | None:
    """Return the error for an id that is not OpenAI's, in a prompt that would be sent to OpenAI because it names no
    provider; else None."""
    model = agent.model
    if "provider" in model.model_fields_set or model.id.startswith(("ft:", "arn:")):
        return None
    name, _, tag = model.id.partition(":")
    family, id = _FAMILY.match(name), model.id
    if _VENDOR.match(name):
        server, what = "openrouter", "has the name of a vendor"
    elif LOCAL_TAG.fullmatch(tag):
        server, what = "ollama", "has the tag of a local model"
    elif family:
        server, what = _FAMILIES[family[0].lower()], "is not one of OpenAI's"
    elif tag and name != "openai" and (near := find_misspelt(name, agent.registry)):
        server, what, id = near, f"looks like one of {near}", tag
    else:
        return None
    meant = f"{server}:{id}"
    return RequestError(
        f"the model '{model.id}' {what}, and the prompt names no provider, so it would be sent to OpenAI",
        f"Name the provider or the server: `model: {meant}`, or `provider: openai` if OpenAI has it.",
        f"Name the provider or the server: --model {meant}, or --provider openai if OpenAI has it.",
        keys=("model", "id"),
    )
