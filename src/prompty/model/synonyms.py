"""Names that people write from memory, or from other tools, and what a .prompty file calls them."""

# Names of kinds in JSON Schema, Python and Prompty v1.
KIND_SYNONYMS = {
    "number": "float",
    "double": "float",
    "int": "integer",
    "str": "string",
    "text": "string",
    "bool": "boolean",
    "list": "array",
    "dict": "object",
}

# Names of roles in other tools.
ROLE_SYNONYMS = {
    "human": "user",
    "person": "user",
    "customer": "user",
    "ai": "assistant",
    "bot": "assistant",
    "model": "assistant",
    "chatbot": "assistant",
    "instructions": "system",
}

# Keys of a frontmatter, without case and underscores, that hold the text of a prompt in other tools.
BODY_KEYS = frozenset({"messages", "prompt", "prompts", "systemprompt", "systemmessage", "system", "user", "content"})

# Keys of other formats, without case and underscores → the key of a file.
KEY_SYNONYMS = {"maxtokens": "model.options.maxOutputTokens", "stop": "model.options.stopSequences"}

# Keywords of other runtimes → the fix.
OPTION_SYNONYMS = {
    "target_type": "Write output_type=….",
    "max_llm_retries": "Write max_retries=….",
    "parallel_tool_calls": "Write tool_execution='parallel' or 'sequential'.",
    "compaction": "Write context_budget=Context(limit=…, summary=…).",
    "raw": "Pass details=True, and read the result's `replies`.",
    "turn": "Call turn() once for each message of the user, with session_id= and memory=.",
    "parameters": "Pass model options as options={'temperature': 0.2}.",
    "configuration": "Write the connection in the file, or pass model='provider:id'.",
    "config_name": "Write the connection in the file, or pass model='provider:id'.",
}

# Keys of JSON Schema and other formats in an input, an output or a parameter → the fix.
PROPERTY_SYNONYMS = {
    "type": "Write `kind:`.",
    "enum": "Write `enumValues:`.",
    "choices": "Write `enumValues:`.",
    "optional": "A property is optional unless it has `required: true`.",
    **dict.fromkeys(
        ("min", "max", "minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems", "pattern", "format"),
        "prompty does not check it. Describe the limit in `description:`.",
    ),
}
