"""Names from OpenTelemetry's semantic conventions for generative AI, version 1.41.0, the last release with them.

They are still in development there. To follow a change, edit only this file.
"""

SCHEMA_URL = "https://opentelemetry.io/schemas/1.41.0"

AGENT_DESCRIPTION = "gen_ai.agent.description"
AGENT_NAME = "gen_ai.agent.name"
AGENT_VERSION = "gen_ai.agent.version"
CONVERSATION_ID = "gen_ai.conversation.id"
ERROR_TYPE = "error.type"
INPUT_MESSAGES = "gen_ai.input.messages"
OPERATION_NAME = "gen_ai.operation.name"
OUTPUT_MESSAGES = "gen_ai.output.messages"
OUTPUT_TYPE = "gen_ai.output.type"
PROMPT_NAME = "gen_ai.prompt.name"
PROMPT_VERSION = "gen_ai.prompt.version"  # not in 1.41.0; the hash of the prompt's text
PROMPT_VARIABLE_PREFIX = "gen_ai.prompt.variable."  # not in 1.41.0; the name of an input follows
PROVIDER_NAME = "gen_ai.provider.name"
REQUEST_MODEL = "gen_ai.request.model"
REQUEST_STREAM = "gen_ai.request.stream"
RESPONSE_FINISH_REASONS = "gen_ai.response.finish_reasons"
RESPONSE_ID = "gen_ai.response.id"
RESPONSE_MODEL = "gen_ai.response.model"
SERVER_ADDRESS = "server.address"
SERVER_PORT = "server.port"
SYSTEM_INSTRUCTIONS = "gen_ai.system_instructions"
TIME_TO_FIRST_CHUNK = "gen_ai.response.time_to_first_chunk"
TOKEN_TYPE = "gen_ai.token.type"  # noqa: S105  a name, not a secret
TOOL_CALL_ARGUMENTS = "gen_ai.tool.call.arguments"
TOOL_CALL_ID = "gen_ai.tool.call.id"
TOOL_CALL_RESULT = "gen_ai.tool.call.result"
TOOL_DEFINITIONS = "gen_ai.tool.definitions"
TOOL_DESCRIPTION = "gen_ai.tool.description"
TOOL_NAME = "gen_ai.tool.name"
TOOL_TYPE = "gen_ai.tool.type"

# Options under `additionalProperties` follow this prefix.
REQUEST_PREFIX = "gen_ai.request."
# By the names of options in a file, and of token counts.
REQUEST_OPTIONS = {
    "temperature": "gen_ai.request.temperature",
    "top_p": "gen_ai.request.top_p",
    "top_k": "gen_ai.request.top_k",
    "max_output_tokens": "gen_ai.request.max_tokens",
    "frequency_penalty": "gen_ai.request.frequency_penalty",
    "presence_penalty": "gen_ai.request.presence_penalty",
    "stop_sequences": "gen_ai.request.stop_sequences",
    "seed": "gen_ai.request.seed",
}
USAGE = {
    "input_tokens": "gen_ai.usage.input_tokens",
    "output_tokens": "gen_ai.usage.output_tokens",
    "cache_read_tokens": "gen_ai.usage.cache_read.input_tokens",
    "cache_write_tokens": "gen_ai.usage.cache_creation.input_tokens",
    "reasoning_tokens": "gen_ai.usage.reasoning.output_tokens",
    "cache_write_1h_tokens": "prompty.usage.cache_creation_1h.input_tokens",  # the conventions have no name for it
}
USAGE_PREFIX = "prompty.usage."
REQUESTS_PREFIX = "prompty.usage.requests."  # the name of a provider's tool follows


def get_usage_name(count: str) -> str:
    """Return the attribute for a count of tokens, or of a provider's calls: `requests.web_search`."""
    return USAGE.get(count) or f"{USAGE_PREFIX}{count}"


# Metrics and the event.
CLIENT_DURATION = "gen_ai.client.operation.duration"
CLIENT_FIRST_CHUNK = "gen_ai.client.operation.time_to_first_chunk"
CLIENT_TOKENS = "gen_ai.client.token.usage"
DETAILS_EVENT = "gen_ai.client.inference.operation.details"

# Providers with another name in the conventions.
GEN_AI_PROVIDERS = {"azure": "azure.ai.openai", "foundry": "azure.ai.openai"}

# prompty's own names.
OPERATION = "prompty.operation"
PROVIDER_KEY = "prompty.provider"  # the key in the file
SHA256 = "prompty.sha256"
ATTEMPTS = "prompty.attempts"
RUN_ID = "prompty.run.id"
ABANDONED = "prompty.abandoned"
API_REASON = "prompty.api.reason"  # why an API was chosen that the file does not name
TOOL_RUN_BY = "prompty.tool.run_by"  # `provider` for a tool that the provider ran
OMITTED = "prompty.request.omitted"  # options of the file that the model refuses
