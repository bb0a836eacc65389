"""Write `docs/reference/model-facts.md` from facts/models.yaml: what prompty knows about models, with the sources."""

import re
from html import escape
from pathlib import Path
from typing import Any

from prompty.providers.facts import VALUES
from scripts.pages import read_head
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


def build_page() -> str:
    """Return the text of the page."""
    data = load()
    parts = [read_head(PAGE), f"\nThe facts were checked on {data['checked']}.\n\n## Defaults\n\n"]
    parts += ["These are choices of this project, not facts.\n\n| choice | value |\n|---|---|\n"]
    parts += [f"| `{name}` | `{choice['value']}` |\n" for name, choice in data["choices"].items()]
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
