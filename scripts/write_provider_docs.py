"""Write `docs/reference/providers/*.md` from the code: the wire form of messages, tools and options (§7.8), and the
differences between servers."""

import json
from pathlib import Path

from prompty import Message, PromptAgent, ToolCall, assistant, system, tool_result, user
from prompty.errors import RequestError
from prompty.model.agent import ModelOptions
from prompty.model.content import AudioPart, FilePart, ImagePart
from prompty.providers import PROVIDERS, Api, Provider
from prompty.providers.fitting import fit_request
from prompty.providers.profiles import AZURE, AZURE_BEFORE_2024_09, PROFILES, Profile
from prompty.registry import DEFAULT
from prompty.tools import Function
from scripts.pages import read_head

FOLDER = Path(__file__).parent.parent / "docs" / "reference" / "providers"

KEYS = ("openai", "anthropic", "foundry")

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
    parts = [read_head(FOLDER / f"{provider.key}.md")]
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
        body = api.request(fit_request(agent, api), messages, functions)
    except RequestError as error:
        return f"refused: {error.cause}"
    wanted = ("tools",) if functions else ("instructions", "system", "input", "messages")
    text = json.dumps({name: body[name] for name in wanted if name in body}, ensure_ascii=False)
    return f"`{text}`"


def profiles_page() -> str:
    parts = [read_head(FOLDER / "profiles.md"), "## Addresses", ""]
    parts += ["| server | `provider` | hosts | endpoint | key | header | `apiType` |", "|---|---|---|---|---|---|---|"]
    for profile in PROFILES:
        hosts = ", ".join(f"`{host}`" for host in profile.hosts) or "any other"
        apis = ", ".join(f"`{api}`" for api in profile.apis)
        key = f"`{profile.key}`" if profile.key else "—"
        parts.append(
            f"| [{profile.title}]({profile.docs}) | `{profile.provider}` | {hosts} | `{profile.base_url}` | {key} | "
            f"`{profile.auth}` | {apis} |"
        )
    columns = "output limit | seed | `developer` becomes | schema of `outputs` | reasoning goes back as | ids of calls"
    parts += ["", "## Chat requests", "", f"| server | {columns} | left out |", "|---|---|---|---|---|---|---|---|"]
    parts += [f"| {profile.title} | {' | '.join(describe_chat(profile))} |" for profile in list_chat_profiles()]
    return "\n".join(parts) + "\n"


def list_chat_profiles() -> list[Profile]:
    """Return the servers with OpenAI's chat format. Azure's early versions follow those of today."""
    chat = [profile for profile in PROFILES if profile.provider != "anthropic"]
    chat.insert(chat.index(AZURE) + 1, AZURE_BEFORE_2024_09)
    return chat


def describe_chat(profile: Profile) -> list[str]:
    """Return the cells of a server in the table of chat requests."""
    reasoning = f"`{profile.reasoning}`" if profile.reasoning else "signatures of calls" if profile.extras else "—"
    ids = f"exactly {profile.id_length} letters and digits" if profile.id_length else "as they came"
    left_out = [*sorted(profile.unsupported), *([] if profile.stream_options else ["stream_options"])]
    return [
        f"`{profile.token_field}`",
        "—" if profile.seed_field in profile.unsupported else f"`{profile.seed_field}`",
        "`developer`" if profile.developer_role else "`system`",
        "sent" if profile.json_schema else "sent, but refused: use `apiType: responses`",
        reasoning,
        f"at most {profile.longest_id} characters" if profile.longest_id else ids,
        ", ".join(f"`{name}`" for name in left_out) or "—",
    ]


def pages() -> dict[Path, str]:
    written = {FOLDER / f"{key}.md": page(DEFAULT[PROVIDERS].get(key)) for key in KEYS}
    return {**written, FOLDER / "profiles.md": profiles_page()}


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
