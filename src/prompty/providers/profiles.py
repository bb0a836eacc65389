"""Endpoint profiles: the differences between servers that speak the same format, as data.

A profile belongs to the host that a request goes to, whoever names that host: the file, the environment or a client
that the host program has registered. `docs/reference/providers/profiles.md` is written from this table.
"""

import re
from dataclasses import dataclass, replace
from functools import lru_cache

from prompty.safety.origins import RESOURCE_HOSTS, Origin, parse_origin

_REGION = r"[a-z]{2}(?:-[a-z]+)+-\d"
_CHAT = ("chat",)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Profile:
    """One kind of server.

    `provider` is the provider whose format it speaks. In `hosts`, `*.` stands for any subdomain, `{region}` for a
    region of AWS, and `localhost:port` for that port of this machine. `base_url` is the endpoint to write in a file,
    and `key` the variable that holds its key. `apis` are the API types that its documentation names.

    `unsupported` are fields that it refuses, which are left out. `reasoning` is the field for reasoning that goes back
    with calls, or None if it takes none. `extras` is True if calls go back with whatever stood beside them. An id of a
    call has at most `longest_id` characters, or exactly `id_length` letters and digits. `developer_role` is True if
    chat is known to take the role `developer`; anywhere else it becomes `system`. `json_schema` is False if chat takes
    no JSON Schema as `response_format`.
    """

    name: str
    title: str
    provider: str = "openai"
    hosts: tuple[str, ...] = ()
    base_url: str
    key: str | None = None
    auth: str = "authorization: Bearer"
    apis: tuple[str, ...] = _CHAT
    token_field: str = "max_completion_tokens"  # noqa: S105  the name of a field
    seed_field: str = "seed"
    unsupported: frozenset[str] = frozenset()
    stream_options: bool = True
    developer_role: bool = False
    json_schema: bool = True
    reasoning: str | None = "reasoning_content"
    extras: bool = True
    longest_id: int | None = None
    id_length: int | None = None
    api_version: str | None = None
    docs: str


OPENAI = Profile(
    name="openai",
    title="OpenAI",
    hosts=("api.openai.com", "*.api.openai.com"),
    base_url="https://api.openai.com/v1",
    key="OPENAI_API_KEY",
    apis=("chat", "responses", "embedding", "image"),
    developer_role=True,
    reasoning=None,
    extras=False,
    longest_id=40,
    docs="https://platform.openai.com/docs/api-reference/chat/create",
)
AZURE = Profile(
    name="azure",
    title="Azure OpenAI and Microsoft Foundry",
    provider="foundry",
    hosts=RESOURCE_HOSTS,
    base_url="https://resource.services.ai.azure.com/api/projects/project",
    key="AZURE_OPENAI_API_KEY",
    auth="api-key:",
    apis=("chat", "responses", "embedding"),
    developer_role=True,
    reasoning=None,
    extras=False,
    longest_id=40,
    docs="https://learn.microsoft.com/azure/foundry/openai/api-version-lifecycle",
)
# These versions answer 400 to fields that 2024-09-01-preview added ("Unrecognized request argument supplied").
AZURE_BEFORE_2024_09 = replace(
    AZURE,
    title="Azure OpenAI, `apiVersion` before 2024-09-01-preview",
    apis=("chat", "embedding"),
    token_field="max_tokens",  # noqa: S106  the name of a field
    unsupported=frozenset({"parallel_tool_calls"}),
    stream_options=False,
    developer_role=False,
)
# DeepSeek, Qwen, GLM, Kimi, and the servers that people run open models on, agree on `reasoning_content`.
GENERIC = Profile(
    name="compatible",
    title="any other compatible server",
    base_url="https://host/v1",
    apis=("chat", "responses", "embedding", "image"),
    docs="https://platform.openai.com/docs/api-reference/chat/create",
)
ANTHROPIC = Profile(
    name="anthropic",
    title="Anthropic",
    provider="anthropic",
    hosts=("api.anthropic.com",),
    base_url="https://api.anthropic.com",
    key="ANTHROPIC_API_KEY",
    token_field="max_tokens",  # noqa: S106  the name of a field
    api_version="2026-10-21",
    docs="https://docs.anthropic.com/en/api/messages",
)
# Any other server with that format. It may offer other models under the same names.
_ANTHROPIC_FORMAT = replace(ANTHROPIC, name="compatible", hosts=())

PROFILES = (
    OPENAI,
    AZURE,
    ANTHROPIC,
    # Unknown fields are refused by name ("Cannot find field"). Signatures of thoughts stand beside the calls.
    Profile(
        name="gemini",
        title="Gemini",
        hosts=("generativelanguage.googleapis.com",),
        base_url="https://generativelanguage.googleapis.com/v1beta/openai",
        key="GEMINI_API_KEY",
        apis=("chat", "embedding", "image"),
        unsupported=frozenset({"frequency_penalty", "seed"}),
        reasoning=None,
        docs="https://ai.google.dev/gemini-api/docs/openai",
    ),
    Profile(
        name="bedrock",
        title="Amazon Bedrock, OpenAI's format",
        hosts=("bedrock-runtime.{region}.amazonaws.com", "bedrock-mantle.{region}.api.aws"),
        base_url="https://bedrock-runtime.us-east-1.amazonaws.com/openai/v1",
        key="AWS_BEARER_TOKEN_BEDROCK",
        apis=("chat", "responses"),
        docs="https://docs.aws.amazon.com/bedrock/latest/userguide/inference-responses-api.html",
    ),
    Profile(
        name="bedrock-anthropic",
        title="Amazon Bedrock, Anthropic's format",
        provider="anthropic",
        hosts=("bedrock-runtime.{region}.amazonaws.com", "bedrock-mantle.{region}.api.aws"),
        base_url="https://bedrock-mantle.us-east-1.api.aws/anthropic",
        key="AWS_BEARER_TOKEN_BEDROCK",
        auth="x-api-key:",
        token_field="max_tokens",  # noqa: S106  the name of a field
        api_version="2023-06-01",
        docs="https://docs.aws.amazon.com/bedrock/latest/userguide/inference-messages-api.html",
    ),
    Profile(
        name="groq",
        title="Groq",
        hosts=("api.groq.com",),
        base_url="https://api.groq.com/openai/v1",
        key="GROQ_API_KEY",
        apis=("chat", "responses"),
        unsupported=frozenset({"messages.name"}),
        reasoning="reasoning",
        docs="https://console.groq.com/docs/openai",
    ),
    # Answers 422 to any field that it does not know. Streams end with their usage without being asked.
    Profile(
        name="mistral",
        title="Mistral",
        hosts=("api.mistral.ai", "codestral.mistral.ai"),
        base_url="https://api.mistral.ai/v1",
        key="MISTRAL_API_KEY",
        apis=("chat", "embedding"),
        token_field="max_tokens",  # noqa: S106  the name of a field
        seed_field="random_seed",
        unsupported=frozenset({"messages.name"}),
        stream_options=False,
        reasoning=None,
        extras=False,
        id_length=9,
        docs="https://docs.mistral.ai/api/",
    ),
    Profile(
        name="openrouter",
        title="OpenRouter",
        hosts=("openrouter.ai",),
        base_url="https://openrouter.ai/api/v1",
        key="OPENROUTER_API_KEY",
        apis=("chat", "responses", "embedding"),
        reasoning="reasoning",
        docs="https://openrouter.ai/docs/use-cases/reasoning-tokens",
    ),
    # `response_format: json_schema` is "unavailable now" on chat. Its Responses API takes schemas.
    Profile(
        name="deepseek",
        title="DeepSeek",
        hosts=("api.deepseek.com",),
        base_url="https://api.deepseek.com",
        key="DEEPSEEK_API_KEY",
        apis=("chat", "responses"),
        token_field="max_tokens",  # noqa: S106  the name of a field
        json_schema=False,
        docs="https://api-docs.deepseek.com/api/create-chat-completion",
    ),
    Profile(
        name="cerebras",
        title="Cerebras",
        hosts=("api.cerebras.ai",),
        base_url="https://api.cerebras.ai/v1",
        key="CEREBRAS_API_KEY",
        reasoning=None,
        extras=False,
        docs="https://inference-docs.cerebras.ai/resources/openai",
    ),
    # Grok models refuse penalties, also a penalty of 0.
    Profile(
        name="xai",
        title="xAI",
        hosts=("api.x.ai",),
        base_url="https://api.x.ai/v1",
        key="XAI_API_KEY",
        apis=("chat", "responses"),
        unsupported=frozenset({"frequency_penalty", "presence_penalty"}),
        docs="https://docs.x.ai/docs/guides/chat-completions",
    ),
    # `reasoning` was called `reasoning_content` once, which is now ignored.
    Profile(
        name="vllm",
        title="vLLM",
        hosts=("localhost:8000",),
        base_url="http://localhost:8000/v1",
        apis=("chat", "responses", "embedding"),
        reasoning="reasoning",
        docs="https://docs.vllm.ai/en/latest/features/reasoning_outputs/",
    ),
    Profile(
        name="llama.cpp",
        title="llama.cpp",
        hosts=("localhost:8080",),
        base_url="http://localhost:8080/v1",
        apis=("chat", "responses", "embedding"),
        docs="https://github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md",
    ),
    # Accepts `max_completion_tokens` without a word, and ignores it (ollama/ollama#7125).
    Profile(
        name="ollama",
        title="Ollama",
        hosts=("localhost:11434", "ollama.com"),
        base_url="http://localhost:11434/v1",
        key="OLLAMA_API_KEY",
        apis=("chat", "responses", "embedding"),
        token_field="max_tokens",  # noqa: S106  the name of a field
        reasoning="reasoning",
        docs="https://docs.ollama.com/api/openai-compatibility",
    ),
    Profile(
        name="lm-studio",
        title="LM Studio",
        hosts=("localhost:1234",),
        base_url="http://localhost:1234/v1",
        apis=("chat", "responses", "embedding"),
        token_field="max_tokens",  # noqa: S106  the name of a field
        docs="https://lmstudio.ai/docs/developer/openai-compat",
    ),
    GENERIC,
)


_BY_NAME = {profile.name: profile for profile in PROFILES if profile.hosts}


def get_profile(name: str) -> Profile | None:
    """Return the profile of this name, or None. A compatible server has no address, so no name leads to it."""
    return _BY_NAME.get(name)


def find_profile(url: str, provider: str = "openai") -> Profile:
    """Return the profile of the server at a URL. Without a URL that is the provider's own server."""
    own, other = (ANTHROPIC, _ANTHROPIC_FORMAT) if provider == "anthropic" else (OPENAI, GENERIC)
    if not url:
        return own
    known = (one for one in _find_at(url) if (one.provider == "anthropic") == (provider == "anthropic"))
    return next(known, other)


@lru_cache(maxsize=256)
def _find_at(url: str) -> tuple[Profile, ...]:
    origin = parse_origin(url)
    return tuple(profile for profile in PROFILES if origin and _is_at(origin, profile.hosts))


def find_key_variables(url: str) -> frozenset[str]:
    """Return the variables with the keys of the servers at a URL, which must be https at the usual port."""
    if not (found := _find_at(url)):
        return frozenset()
    origin = parse_origin(url)
    if origin is None or (origin.scheme, origin.port) != ("https", 443):
        return frozenset()
    return frozenset(profile.key for profile in found if profile.key)


def find_own_prefixes(url: str) -> tuple[str, ...]:
    """Return how the names of variables begin that hold keys of the servers at a URL: `GROQ_` for Groq."""
    keys = find_key_variables(url)
    prefixes = [key.removesuffix("API_KEY") for key in sorted(keys)]
    return (*prefixes, "AZURE_AI_", "AZURE_API_") if AZURE.key in keys else tuple(prefixes)


def _is_at(origin: Origin, hosts: tuple[str, ...]) -> bool:
    for host in hosts:
        name, _, port = host.partition(":")
        if port:
            if origin.is_loopback and origin.port == int(port):
                return True
        elif _PATTERNS[name].fullmatch(origin.host):
            return True
    return False


def _compile(host: str) -> re.Pattern[str]:
    pattern = re.escape(host).replace(re.escape("{region}"), _REGION)
    return re.compile(pattern.replace(r"\*", r"[^.]+(?:\.[^.]+)*"))


_PATTERNS = {host: _compile(host) for profile in PROFILES for host in profile.hosts if ":" not in host}
