"""Answers with tools that run at the provider, as Responses and Messages send them: whole, and as events of a stream.

Each payload and each event has the shape of the installed SDKs' types, which `tests/providers/test_hosted.py` checks.
"""

import json
from collections.abc import Iterator
from typing import Any

from prompty import PromptAgent
from tests.loopback import Reply, Server, event, json_reply, stream

Json = dict[str, Any]
WEB_SEARCH = {"type": "web_search_20250305", "name": "web_search"}
FOUND = {"type": "web_search_result", "url": "https://e.example/", "title": "E", "encrypted_content": "RU5D"}
CITATION = {
    "type": "web_search_result_location",
    "url": "https://e.example/",
    "title": "E",
    "encrypted_index": "SURY",
    "cited_text": "It is so, says E.",
}

FUNCTION = {
    "name": "look",
    "kind": "function",
    "description": "Look",
    "parameters": [{"name": "at", "kind": "string"}],
}

# Responses


def spoken(text: str, phase: str | None = None, at: str = "1") -> Json:
    content = [{"type": "output_text", "text": text, "annotations": [], "logprobs": []}]
    item = {"id": f"msg_{at}", "type": "message", "role": "assistant", "status": "completed", "content": content}
    return {**item, "phase": phase} if phase else item


def reasoned(text: str, at: str = "1") -> Json:
    summary = [{"type": "summary_text", "text": text}]
    return {"id": f"rs_{at}", "type": "reasoning", "summary": summary, "encrypted_content": "gAAA"}


def called(name: str, at: str = "1", /, **arguments: object) -> Json:
    call = {"call_id": f"call_{at}", "name": name, "arguments": json.dumps(arguments)}
    return {"id": f"fc_{at}", "type": "function_call", "status": "completed", **call}


def searched(query: str = "q", at: str = "1") -> Json:
    action = {"type": "search", "query": query, "queries": [query], "sources": [{"type": "url", "url": FOUND["url"]}]}
    return {"id": f"ws_{at}", "type": "web_search_call", "status": "completed", "action": action}


def asked_approval(tool: str = "delete", at: str = "1", /, **arguments: object) -> Json:
    request = {"server_label": "wiki", "name": tool, "arguments": json.dumps(arguments)}
    return {"id": f"mcpr_{at}", "type": "mcp_approval_request", **request}


def listed_tools(at: str = "1") -> Json:
    tools = [{"name": "delete", "input_schema": {"type": "object"}, "annotations": None, "description": None}]
    return {"id": f"mcpl_{at}", "type": "mcp_list_tools", "server_label": "wiki", "tools": tools}


def ran_mcp(tool: str = "delete", at: str = "1", request: str | None = "mcpr_1") -> Json:
    call = {"server_label": "wiki", "name": tool, "arguments": "{}", "output": "gone", "approval_request_id": request}
    return {"id": f"mcp_{at}", "type": "mcp_call", "status": "completed", **call}


def drawn(data: str = "aW1n", at: str = "1") -> Json:
    item = {"id": f"ig_{at}", "type": "image_generation_call", "status": "completed", "result": data}
    return {**item, "output_format": "webp"}


def compacted(at: str = "1") -> Json:
    return {"id": f"cmp_{at}", "type": "compaction", "encrypted_content": "Y21w"}


def response(*items: Json, status: str = "completed", **fields: Any) -> Json:
    """A whole answer of Responses."""
    usage = {
        "input_tokens": 10,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": 5,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 15,
    }
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1.0,
        "model": "gpt-6",
        "status": status,
        "output": list(items),
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": usage if status == "completed" else None,
        **fields,
    }


def response_events(*items: Json, **fields: Any) -> list[Json]:
    """The same answer as events."""
    whole = response(*items, **fields)
    begun = {**whole, "status": "in_progress", "output": [], "usage": None}
    events: list[Json] = [{"type": "response.created", "response": begun}]
    for index, item in enumerate(items):
        events += ({**one, "output_index": index} for one in _item_events(item))
    events.append({"type": f"response.{whole['status']}", "response": whole})
    return [{**one, "sequence_number": number} for number, one in enumerate(events)]


def _item_events(item: Json) -> Iterator[Json]:
    kind, at = item["type"], {"item_id": item["id"]}
    if kind == "message":
        part = item["content"][0]
        text = part["text"]
        place = {**at, "content_index": 0}
        yield {"type": "response.output_item.added", "item": {**item, "status": "in_progress", "content": []}}
        yield {"type": "response.content_part.added", **place, "part": {**part, "text": ""}}
        for piece in filter(None, (text[: len(text) // 2], text[len(text) // 2 :])):
            yield {"type": "response.output_text.delta", **place, "delta": piece, "logprobs": []}
        yield {"type": "response.output_text.done", **place, "text": text, "logprobs": []}
        yield {"type": "response.content_part.done", **place, "part": part}
    elif kind == "reasoning":
        part = item["summary"][0]
        place = {**at, "summary_index": 0}
        yield {"type": "response.output_item.added", "item": {**item, "summary": []}}
        yield {"type": "response.reasoning_summary_part.added", **place, "part": {**part, "text": ""}}
        yield {"type": "response.reasoning_summary_text.delta", **place, "delta": part["text"]}
        yield {"type": "response.reasoning_summary_text.done", **place, "text": part["text"]}
        yield {"type": "response.reasoning_summary_part.done", **place, "part": part}
    elif kind == "function_call":
        yield {"type": "response.output_item.added", "item": {**item, "status": "in_progress", "arguments": ""}}
        yield {"type": "response.function_call_arguments.delta", **at, "delta": item["arguments"]}
        done = {"type": "response.function_call_arguments.done", **at, "arguments": item["arguments"]}
        yield {**done, "name": item["name"]}
    elif kind == "web_search_call":
        yield {"type": "response.output_item.added", "item": {**item, "status": "in_progress"}}
        for moment in ("in_progress", "searching", "completed"):
            yield {"type": f"response.web_search_call.{moment}", **at}
    else:
        yield {"type": "response.output_item.added", "item": item}
    yield {"type": "response.output_item.done", "item": item}


# Messages


def text_block(text: str, *citations: Json) -> Json:
    return {"type": "text", "text": text, "citations": list(citations)} if citations else {"type": "text", "text": text}


def thought(text: str) -> Json:
    return {"type": "thinking", "thinking": text, "signature": "c2ln"}


def search(query: str = "q", at: str = "1") -> Json:
    return {"type": "server_tool_use", "id": f"srvtoolu_{at}", "name": "web_search", "input": {"query": query}}


def search_result(at: str = "1") -> Json:
    return {"type": "web_search_tool_result", "tool_use_id": f"srvtoolu_{at}", "content": [FOUND]}


def tool_use(name: str, at: str = "1", /, **arguments: object) -> Json:
    return {"type": "tool_use", "id": f"toolu_{at}", "name": name, "input": arguments}


def compaction_block(summary: str = "They said hello.") -> Json:
    return {"type": "compaction", "content": summary, "encrypted_content": "Y21w"}


def message(*blocks: Json, stop: str = "end_turn", **fields: Any) -> Json:
    """A whole answer of Messages."""
    searches = sum(block["type"] == "server_tool_use" for block in blocks)
    used = {"web_search_requests": searches, "web_fetch_requests": 0}
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-x",
        "content": list(blocks),
        "stop_reason": stop,
        "stop_sequence": None,
        "usage": {"input_tokens": 10, "output_tokens": 5, "server_tool_use": used},
        **fields,
    }


def message_events(*blocks: Json, **fields: Any) -> list[Json]:
    """The same answer as events."""
    whole = message(*blocks, **fields)
    begun = {**whole, "content": [], "stop_reason": None, "usage": {"input_tokens": 10, "output_tokens": 1}}
    begun.pop("container", None)
    events: list[Json] = [{"type": "message_start", "message": begun}]
    for index, block in enumerate(blocks):
        start, deltas = _split_block(block)
        events.append({"type": "content_block_start", "index": index, "content_block": start})
        events += ({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas)
        events.append({"type": "content_block_stop", "index": index})
    end = {key: whole[key] for key in ("stop_reason", "stop_sequence", "container", "stop_details") if key in whole}
    usage = {key: whole["usage"][key] for key in ("output_tokens", "server_tool_use")}
    return [*events, {"type": "message_delta", "delta": end, "usage": usage}, {"type": "message_stop"}]


def _split_block(block: Json) -> tuple[Json, list[Json]]:
    match block:
        case {"type": "text", "text": text}:
            cited = [{"type": "citations_delta", "citation": one} for one in block.get("citations", [])]
            start = {"type": "text", "text": "", **({"citations": []} if cited else {})}
            pieces = [piece for piece in (text[: len(text) // 2], text[len(text) // 2 :]) if piece]
            return start, [*cited, *({"type": "text_delta", "text": piece} for piece in pieces)]
        case {"type": "thinking", "thinking": text, "signature": signature}:
            deltas = [{"type": "thinking_delta", "thinking": text}, {"type": "signature_delta", "signature": signature}]
            return {"type": "thinking", "thinking": "", "signature": ""}, deltas
        case {"type": "server_tool_use" | "tool_use", "input": value}:
            written = json.dumps(value)
            halves = [written[: len(written) // 2], written[len(written) // 2 :]]
            return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": half} for half in halves]
        case {"type": "compaction"}:
            delta = {**block, "type": "compaction_delta"}
            return {"type": "compaction", "content": None}, [delta]
    return block, []


# Loopback


def agent_at(server: Server, wire: str = "responses", *raw: object, **parts: Any) -> PromptAgent:
    """A prompt for the loopback server, with these tools under `additionalProperties`."""
    provider = "anthropic" if wire == "messages" else "openai"
    api_type = "chat" if wire == "messages" else wire
    connection = {"kind": "anonymous", "endpoint": server.url}
    extra = {**parts.pop("extra", {}), **({"tools": list(raw)} if raw else {})}
    options = {"additionalProperties": extra, **parts.pop("options", {})}
    model = {"id": "m", "provider": provider, "apiType": api_type, "connection": connection, "options": options}
    return PromptAgent.model_validate({"model": model, "instructions": "user:\nHi", **parts})


def answer(wire: str, *parts: Json, streamed: bool, **fields: Any) -> Reply:
    """An answer of the server: of Responses or of Messages, whole or as a stream."""
    if not streamed:
        return json_reply((response if wire == "responses" else message)(*parts, **fields))
    events = (response_events if wire == "responses" else message_events)(*parts, **fields)
    return stream(*map(event, events))
