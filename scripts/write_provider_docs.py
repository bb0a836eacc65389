"""Write `docs/reference/providers/*.md` from the code: the wire form of messages, tools and options (§7.8)."""

import json
from pathlib import Path

from prompty.errors import RequestError
from prompty.model.agent import PromptAgent
from prompty.model.content import AudioPart, FilePart, ImagePart
from prompty.model.message import Message, ToolCall, assistant, system, tool_result, user
from prompty.model.options import ModelOptions
from prompty.model.request import Function
from prompty.providers import Api, Provider
from prompty.registry import DEFAULT

FOLDER = Path(__file__).parent.parent / "docs" / "reference" / "providers"

HEADS = {
    "openai": "OpenAI, and every server that speaks its format: set `connection.endpoint`. Extra: `openai`.",
    "anthropic": "Anthropic's Messages API. Extra: `anthropic`.",
    "foundry": (
        "Microsoft Foundry and Azure OpenAI (`provider: azure`): OpenAI's formats with Azure's addresses. "
        "A `kind: key` connection sends the key, `kind: foundry` a token from azure-identity. Extra: `foundry`."
    ),
}

CALL = ToolCall(id="call_1", name="get_weather", arguments='{"city":"Oslo"}')
MESSAGES: dict[str, list[Message]] = {
    "system text": [system("Be brief."), user("Hi")],
    "user text": [user("Hi")],
    "image by URL": [user("See", ImagePart("https://example.com/a.png"))],
    "image as base64": [user("See", ImagePart("iVBORw0=", "image/png"))],
    "audio as base64": [user("Hear", AudioPart("UklGRg==", "audio/wav"))],
    "file by URL": [user("Read", FilePart("https://example.com/a.pdf", "application/pdf"))],
    "file as base64": [user("Read", FilePart("JVBERi0=", "application/pdf", "a.pdf"))],
    "a tool turn": [user("Weather?"), assistant(tool_calls=[CALL]), tool_result("call_1", "72°F")],
}
TOOL = Function(
    name="get_weather",
    description="Get the weather of a city",
    parameters={"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
)


def page(provider: Provider) -> str:
    parts = [f"# {provider.key}", "", HEADS[provider.key], ""]
    for api_type, api in provider.apis.items():
        parts += [f"## `apiType: {api_type}`", "", f"`POST …{api.path}`", "", *options(api), ""]
        if api_type in ("chat", "responses"):
            parts += examples(provider.key, api_type, api)
    return "\n".join(parts).rstrip() + "\n"


def options(api: Api) -> list[str]:
    fields = {name: field.alias or name for name, field in ModelOptions.model_fields.items()}
    rows = [
        f"| `{shown}` | {f'`{api.options[name]}`' if name in api.options else '—'} |"
        for name, shown in fields.items()
        if name not in ("allow_multiple_tool_calls", "additional_properties")
    ]
    return ["| option | on the wire |", "|---|---|", *rows, "| `additionalProperties` | as they are |"]


def examples(key: str, api_type: str, api: Api) -> list[str]:
    agent = PromptAgent.model_validate({"model": {"id": "model", "provider": key, "apiType": api_type}})
    parts = ["| messages | on the wire |", "|---|---|"]
    for name, messages in MESSAGES.items():
        parts.append(f"| {name} | {shown(api, agent, messages)} |")
    return [*parts, f"| a tool | {shown(api, agent, [user('Hi')], TOOL)} |", ""]


def shown(api: Api, agent: PromptAgent, messages: list[Message], *functions: Function) -> str:
    try:
        body = api.request(agent, messages, functions)
    except RequestError as error:
        return f"refused: {error.cause}"
    wanted = ("tools",) if functions else ("instructions", "system", "input", "messages")
    text = json.dumps({name: body[name] for name in wanted if name in body}, ensure_ascii=False)
    return f"`{text}`"


def pages() -> dict[Path, str]:
    return {FOLDER / f"{key}.md": page(DEFAULT.providers.get(key)) for key in HEADS}


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True, parents=True)
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
