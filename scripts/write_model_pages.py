"""Write `docs/reference/model-facts.md` from facts/models.yaml: what prompty knows about models, with the sources."""

import re
from html import escape
from pathlib import Path
from typing import Any

from prompty.providers.facts import VALUES
from scripts.write_model_facts import is_sure, load

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "model-facts.md"
TITLES = {
    "openai": "OpenAI",
    "azure": "Azure",
    "anthropic": "Anthropic",
    "bedrock": "Amazon Bedrock",
    "gemini": "Gemini",
    "groq": "Groq",
    "mistral": "Mistral",
    "deepseek": "DeepSeek",
    "cerebras": "Cerebras",
    "xai": "xAI",
}
HEAD = """\
# Model facts

This release knows these facts about models. They were checked on {checked}.

- A fact belongs to a host and to the ids of its models: exact ids, or a pattern for ids without their date. The same
  id can have other rules at another host. A model without a row has no facts, and its requests are sent as the file
  says.
- *official* is the word of the provider, *measured* a published answer of the server, and *secondary* a
  table or an article. *unknown* means that the sources disagree.
- Only a fact in **bold** can change a request. It is official or measured, and at most {months} months old.
  `prompty check` makes hints from the others.
- The date is that of the first source, or of the day when it was read.

[Choose a model](../how-to/choose-a-model.md) says what the facts do, and how you add your own. The file
`facts/models.yaml` in the repository has more facts, which prompty does not read.

## Defaults

Examples, templates and advice use these models and values. They are choices of this project, not facts.

| choice | value |
|---|---|
"""
# The meaning of each fact that prompty reads.
MEANINGS = {
    "status": "whether the provider still offers the model",
    "ends": "its last day",
    "replacement": "the model to use instead",
    "apis": "the APIs that it answers on",
    "structured": "the APIs that take a JSON Schema for its answer",
    "tools": "tools",
    "tools_chat_unset": "tools on chat, without an effort",
    "tools_chat_none": "tools on chat, with the effort none",
    "tools_chat_effort": "tools on chat, with any other effort",
    "forced_tool_choice": "a `tool_choice` that names a tool, or demands any",
    "temperature": "`temperature`",
    "top_p": "`topP`",
    "top_k": "`topK`",
    "penalties": "`frequencyPenalty` and `presencePenalty`",
    "temperature_with_top_p": "`temperature` together with `topP`",
    "stop": "`stopSequences`",
    "seed": "`seed`",
    "max_tokens_on_chat": "`max_tokens` in a request on chat",
    "thinks": "whether it reasons: always, by default, if asked to, or not",
    "effort_chat": "the values of `reasoningEffort` on chat",
    "effort_responses": "the values of `reasoningEffort` on Responses",
    "effort_messages": "the values of `reasoningEffort` on Anthropic's API",
    "effort_default": "the effort if the request has none",
    "thinking_types": "the types of `thinking` on Anthropic's API",
    "thinking_off_max_effort": "the highest effort beside thinking that is off",
    "thinking_blocks_bound": "whether it refuses its own thoughts after something before them has changed",
    "prefill": "a conversation that ends with an assistant message",
    "max_output": "the most tokens of an answer",
    "image_response_format": "`response_format` in a request for an image",
    "cache_kind": "how prompts are cached: by the provider's choice, at marks in the request, or both",
    "cache_min": "the least tokens that are cached",
    "cache_write_factor": "the price of a token that is written to the cache, as a factor of its input price",
}
SAMPLING = """
An option is `ok`, `refused` at any value, `default-only` (only its default value), `effort-none-only` (only while the
model doesn't reason), `old-version-only` (only with Anthropic's API version 2023-06-01), or `ignored-while-thinking`.
"""


def build_page() -> str:
    """Return the text of the page."""
    data = load()
    parts = [HEAD.format(checked=data["checked"], months=data["choices"]["max_age_months"]["value"])]
    parts += [f"| `{name}` | `{choice['value']}` |\n" for name, choice in data["choices"].items()]
    parts.append("\n## Names of facts\n\n| fact | what it says |\n|---|---|\n")
    parts += [f"| `{name}` | {MEANINGS[name]} |\n" for name in VALUES]
    parts.append(SAMPLING)
    for host, title in TITLES.items():
        parts.append(f"\n## {title}\n\n")
        parts.append("| models | fact | value | confidence | date | sources |\n|---|---|---|---|---|---|\n")
        parts += [_write_row(data, row) for row in data["models"] if row["host"] == host]
    used = {key for row in data["models"] for fact in row["facts"].values() for key in fact["source"]}
    sources = {key: source for key, source in data["sources"].items() if key in used}
    parts.append(
        "\n## Packages\n\nSources without a link are files of packages.\n\n| source | package | file |\n|---|---|---|\n"
    )
    parts += [
        f"| {key} | {_escape(one['package'])} | {_escape(one['file'])} |\n"
        for key, one in sources.items()
        if "file" in one
    ]
    parts.append("\n")
    parts += [f"[{key}]: {one['url']}\n" for key, one in sources.items() if "url" in one]
    return "".join(parts)


def _write_row(data: dict[str, Any], row: dict[str, Any]) -> str:
    models = [row["match"].strip("^$").replace(r"\.", ".")] if "match" in row else row["ids"]
    shown = ", ".join(f"<code>{_escape(model)}</code>" for model in models)
    return "".join(
        f"| {shown} | {_write_fact(data, name, fact)} |\n" for name, fact in row["facts"].items() if name in VALUES
    )


def _write_fact(data: dict[str, Any], name: str, fact: dict[str, Any]) -> str:
    value = f"`{_format(fact['value'])}`" + (f" ({_escape(fact['note'])})" if "note" in fact else "")
    name = f"**`{name}`**" if is_sure(data, fact) else f"`{name}`"
    sources = ", ".join(f"[{key}][]" if "url" in data["sources"][key] else key for key in fact["source"])
    return f"{name} | {value} | {fact['confidence']} | {fact['date']} | {sources}"


def _format(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none of them"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _escape(text: str) -> str:
    """Escape a text for a cell, so that no character of it is Markdown."""
    return re.sub(r"[|*_`\[\]\\]", lambda found: f"&#{ord(found[0])};", escape(text, quote=False))


if __name__ == "__main__":
    PAGE.write_text(build_page(), encoding="utf-8")
