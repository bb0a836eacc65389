"""The words of each format, which mutations insert."""


def _split(text: str) -> tuple[str, ...]:
    return tuple(text.split(" "))


PROMPT_WORDS = (
    *("---\n", "+++\n", "\n", "\t", "\r\n", ": ", "- ", "|\n", ">-\n", "&a ", "<<: *a\n", "? ", "!!int "),
    *("!!binary ", "system:\n", "user:\n", "user[a=b]:\n", "{{ x }}"),
    *_split(
        "--- *a !!python/name:os ${env:X} ${env:X:y} ${file:a.json} ${ # 0x 1e999 2026-01-01 name model inputs "
        "outputs tools template metadata connection options kind default parameters bindings approvalMode when items "
        "properties enumValues provider apiType string thread image function mcp jinja2"
    ),
)
TEMPLATE_WORDS = (
    *("{{ x }}", "{% if x %}", "{% endif %}", "{% for a in x %}", "{% endfor %}", "{% raw %}", "{# ", " #}"),
    *("{% endraw %}", "{{=<% %>=}}", "{{ x|join }}", "{{ x()}}", "{{ 1/0 }}", "{{ x*9 }}", "{{ loop.index }}"),
    *("{% macro m() %}", "{% endmacro %}", "{% set x = x %}", "{% set y %}", "{% block b %}"),
    *("{% include 'x' %}", "{% extends x %}", "{% call m() %}", "{% filter upper %}", "{% endset %}", " in "),
    *(" is ", " not ", " if ", " else ", '"', "system:\n", "user:\n", 'user[a="{{ q }}"]:\n', "{{ q }}:\n"),
    *_split(
        "{{x.y}} {{#x}} {{/x}} {{^x}} {{{x}}} {{>p}} |tojson |map('upper') |sort |int |format(q) |attr('__class__') "
        "|groupby('a') |sum [0] [::-1] .__class__ .items() ** // ~ ( ) ' {{ }} {% %} q n range(9) namespace() "
        "cycler(1) recursive loop(x) self.b() assistant[a=1]:"
    ),
)
MARKER_WORDS = (
    *("\nassistant:\n", 'a="b"', "# user:\n", "  user :\n", "User:\n", "{{ q }}", "{% if q %}", "{% endif %}"),
    *("\n", "\r\n", "\r", "\u2028"),
    *_split("system: user: developer: tool: user[ ]: a= a='b' , name=x {{#q}}"),
)
WIRE_WORDS = _split(
    "id type index text content role name arguments function tool_calls choices delta message finish_reason usage "
    "error refusal reasoning output item status input stop tool_use thinking signature citations "
    "reasoning_details extra_content embedding url data completed length stop_reason output_index summary "
    "encrypted_content prompt_tokens prompt_tokens_details cached_tokens input_tokens INVALID_JSON reasoning.text "
    "server_tool_use"
)
JSON_WORDS = (
    *('"', '"a": ', "```json\n", "\\u", "\\ud800"),
    *_split("{ } [ ] , : null true 1 - e9 ``` NaN"),
)
OPENAPI_WORDS = _split(
    "$ref #/components/schemas/Pet #/paths # type properties items allOf anyOf oneOf not required in path query "
    "header cookie style explode schema content parameters get application/json multipart/form-data */* "
    "text/plain x-www-form-urlencoded enum const pattern {id} /pets/{id} deepObject matrix label nullable "
    "exclusiveMinimum $dynamicRef $id $defs servers security operationId readOnly encoding http://169.254.169.254 "
    "3.0.1 (a+)+$ object"
)
MCP_WORDS = _split(
    "name description inputSchema type object properties $ref #/$defs/n text image content isError "
    "structuredContent resource uri blob mimeType tools nextCursor title examples jsonrpc id method params result "
    "error code message level data progress $comment"
)
SSE_WORDS = tuple(
    text.encode()
    for text in ("data:", "data: ", "event: ", "\n\n", "\n", "\r\n", "\r", ": x\n", "[DONE]", "id: 1\n", "{", "}")
)
