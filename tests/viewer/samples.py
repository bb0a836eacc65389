"""Made-up traces that look like real ones: a day out planned by an agent, and trees of any size."""

import json
from base64 import b64encode
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from struct import pack
from typing import Any
from zlib import compress, crc32

Fields = dict[str, Any]

BEGIN = datetime(2026, 11, 15, 6, 40, 17, 123456, tzinfo=UTC)
CITIES = ["Lisbon", "Porto", "Braga", "Faro", "Évora", "Coimbra", "Aveiro", "Sintra"]


def frame(name: str, title: str, start: float, duration: float | None, **fields: Any) -> Fields:
    """A frame that starts `start` milliseconds after the trace and lasts `duration`; None did not finish."""
    begun = BEGIN + timedelta(milliseconds=start)
    end = None if duration is None else (begun + timedelta(milliseconds=duration)).isoformat()
    children = {"__frames": fields.pop("children")} if "children" in fields else {}
    usage = {"__usage": fields.pop("usage")} if "usage" in fields else {}
    time = {"start": begun.isoformat(), "end": end, "duration": duration}
    identity = sha256(f"{name} {title!a} {start}".encode()).hexdigest()[:16]
    return {"name": name, "title": title, "id": identity, "__time": time, **fields, **usage, **children}


def text(role: str, *values: str, **fields: Any) -> Fields:
    parts = [{"kind": "text", "value": value} for value in values]
    return {"role": role, "content": values[0] if len(values) == 1 else parts, **fields}


def call(number: int, name: str, **arguments: Any) -> Fields:
    function = {"name": name, "arguments": json.dumps(arguments, ensure_ascii=False)}
    return {"id": f"call_{number}", "type": "function", "function": function}


def tokens(given: int, made: int, cached: int = 0, thought: int = 0) -> dict[str, int]:
    return {
        "input_tokens": given,
        "output_tokens": made,
        "cache_read_tokens": cached,
        "cache_write_tokens": 0,
        "reasoning_tokens": thought,
    }


def model_call(
    start: float, duration: float, model: str, messages: list[Fields], answer: Fields, **fields: Any
) -> Fields:
    usage = fields["usage"]
    provider = fields.pop("provider", "openai")
    attributes = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": provider,
        "gen_ai.request.model": model,
        "gen_ai.request.temperature": 0.2,
        "gen_ai.response.id": f"chatcmpl-{start:.0f}",
        "gen_ai.response.model": model,
        "gen_ai.response.finish_reasons": ["tool_calls" if "tool_calls" in answer else "stop"],
        "gen_ai.response.time_to_first_chunk": round(duration / 3000, 3),
        "gen_ai.usage.input_tokens": usage["input_tokens"],
        "gen_ai.usage.output_tokens": usage["output_tokens"],
        "gen_ai.usage.cache_read.input_tokens": usage["cache_read_tokens"],
        "gen_ai.usage.reasoning.output_tokens": usage["reasoning_tokens"],
        "server.address": f"api.{provider}.com",
        "server.port": 443,
    }
    inputs = {"messages": messages, "tools": TOOLS}
    return frame(
        "execute", f"chat {model}", start, duration, attributes=attributes, inputs=inputs, result=answer, **fields
    )


def tool_call(start: float, duration: float, number: int, name: str, arguments: Fields, **fields: Any) -> Fields:
    attributes = {"gen_ai.tool.name": name, "gen_ai.tool.type": "function", "gen_ai.tool.call.id": f"call_{number}"}
    title = f"execute_tool {name}"
    return frame("execute_tool", title, start, duration, attributes=attributes, inputs=arguments, **fields)


def offered(name: str, description: str, **properties: Any) -> Fields:
    return {"name": name, "description": description, "parameters": {"type": "object", "properties": properties}}


TOOLS = [
    offered("get_weather", "The weather of a city on a day.", city={"type": "string"}, day={"type": "string"}),
    offered("find_trains", "Trains between two cities.", origin={"type": "string"}, destination={"type": "string"}),
    offered("read_guide", "Ask the guide book, which is an agent of its own.", question={"type": "string"}),
]


def picture(width: int = 240, height: int = 120) -> str:
    """A sunset as the base64 of a PNG."""
    rows = b"".join(
        b"\0" + b"".join(bytes((min(255, 90 + y), 60 + x * 90 // width, max(0, 170 - y))) for x in range(width))
        for y in range(height)
    )
    header = pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = [(b"IHDR", header), (b"IDAT", compress(rows)), (b"IEND", b"")]
    body = b"".join(pack(">I", len(data)) + kind + data + pack(">I", crc32(kind + data)) for kind, data in chunks)
    return b64encode(b"\x89PNG\r\n\x1a\n" + body).decode()


SYSTEM = text(
    "system",
    "You plan days out in Portugal. Look up the weather before you recommend a place, "
    "compare at least five cities, and never recommend a beach in the rain.\n\nAnswer in two short paragraphs.",
)
USER: Fields = {
    "role": "user",
    "content": [
        {"kind": "text", "value": "Where should we go on Sunday? We liked the light in this picture."},
        {"kind": "image", "value": picture(), "mediaType": "image/png", "name": "sunset.png"},
        {"kind": "image", "value": "https://example.com/map.png", "mediaType": "image/png"},
    ],
}
THOUGHT = (
    "They want light like in the picture: low sun over water, warm. I should compare the coast and the "
    "inland cities.\nFirst the weather of all eight, in one go; then trains."
)


def day_out() -> Fields:
    """A turn: three model calls, eight tools at once of which one fails, a child agent, reasoning, a picture, wire."""
    asked = text(
        "assistant",
        "Let me check the weather in eight cities.",
        tool_calls=[call(number, "get_weather", city=city, day="Sunday") for number, city in enumerate(CITIES)],
        reasoning=THOUGHT,
    )
    weather, answers = _weather()
    asked_guide = text("assistant", tool_calls=[call(8, "read_guide", question="What to do in Évora in November?")])
    guided = text("tool", "The Roman temple at sunset; the chapel of bones; lunch at Fialho.", tool_call_id="call_8")
    final = text(
        "assistant",
        "Go to Évora: 19 degrees and sun until half past five, and the light on the Roman temple is the light of "
        "your picture.\n\nTake the 09:02 from Lisbon; it arrives at 10:36. In Porto and Braga it will rain.",
    )
    first, second, third = (
        [SYSTEM, USER],
        [SYSTEM, USER, asked, *answers],
        [SYSTEM, USER, asked, *answers, asked_guide, guided],
    )
    children = [
        frame("prepare", "prepare", 1, 6, children=[frame("render", "render", 1.4, 3), frame("parse", "parse", 5, 2)]),
        model_call(8, 1830, "gpt-5", first, asked, usage=tokens(612, 348, 0, 192), wire=_wire(first, retried=True)),
        *weather,
        model_call(2760, 1120, "gpt-5", second, asked_guide, usage=tokens(1344, 61, 512, 32), wire=_wire(second)),
        tool_call(3890, 2290, 8, "read_guide", {"question": "What to do in Évora in November?"}, children=[_guide()],
                  result="The Roman temple at sunset; the chapel of bones; lunch at Fialho."),
        model_call(6190, 1490, "gpt-5", third, final, usage=tokens(1502, 130, 1280, 0), wire=_wire(third)),
        frame("process", "process", 7682, 0.4),
    ]  # fmt: skip
    attributes = {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": "day-out",
        "gen_ai.agent.description": "Plans days out in Portugal",
        "gen_ai.conversation.id": "conversation-7",
        "prompty.sha256": "9f2c…",
    }
    usage = tokens(612 + 1344 + 1502 + 480, 348 + 61 + 130 + 92, 512 + 1280, 192 + 32)
    inputs = {"question": "Where should we go on Sunday?", "budget": 120, "booking": 12345678901234567890}
    result = final["content"]
    told = {"attributes": attributes, "inputs": inputs, "result": result, "usage": usage, "children": children}
    return frame("turn", "invoke_agent day-out", 0, 7684.2, signature="prompty.turn", **told)


def _weather() -> tuple[list[Fields], list[Fields]]:
    frames, answers = [], []
    for number, city in enumerate(CITIES):
        duration = 240 + 170 * (number * 3 % 5)
        arguments = {"city": city, "day": "Sunday"}
        if city == "Faro":
            error = {"type": "ToolError", "message": "the weather service answered 503: no station near Faro"}
            frames.append(tool_call(1842 + number, duration, number, "get_weather", arguments, error=error))
            told = "Error: Tool 'get_weather' failed: the weather service answered 503"
            answers.append(text("tool", told, tool_call_id=f"call_{number}", isError=True))
            continue
        result = {"city": city, "degrees": 14 + number % 4 * 1.5, "sky": "rain" if number in (1, 2) else "sun"}
        frames.append(tool_call(1842 + number, duration, number, "get_weather", arguments, result=result))
        answers.append(text("tool", json.dumps(result), tool_call_id=f"call_{number}"))
    return frames, answers


def _guide() -> Fields:
    messages = [text("system", "You are the guide book."), text("user", "What to do in Évora in November?")]
    answer = text("assistant", "The Roman temple at sunset; the chapel of bones; lunch at Fialho.")
    inner = model_call(3905, 2240, "claude-sonnet-4-5", messages, answer, usage=tokens(480, 92), provider="anthropic")
    return frame("turn", "invoke_agent guide-book", 3894, 2281, children=[
        frame("load", "load", 3895, 3.1), frame("prepare", "prepare", 3899, 4.2), inner,
    ], attributes={"gen_ai.agent.name": "guide-book"}, usage=tokens(480, 92))  # fmt: skip


def _wire(messages: list[Fields], *, retried: bool = False) -> list[Fields]:
    request = {
        "model": "gpt-5",
        "messages": [{"role": one["role"], "content": "…"} for one in messages],
        "stream": True,
    }
    url = "https://api.openai.com/v1/chat/completions"
    headers = "-H 'Authorization: Bearer $OPENAI_API_KEY' -H 'Content-Type: application/json'"
    curl = f"curl {url} {headers} -d '{json.dumps(request, ensure_ascii=False)}'"
    sent = {"url": url, "request": request, "curl": curl}
    done = {**sent, "response": {"id": "chatcmpl-8", "object": "chat.completion"}, "error": None}
    return [{**sent, "response": None, "error": "503 overloaded; retried after 0.4 s"}, done] if retried else [done]


def many(count: int) -> Fields:
    """A turn of `count` frames: rounds of a model call and nine tools."""
    children: list[Fields] = []
    for number in range(count - 1):
        start = number * 7.0
        if number % 10 == 0:
            answer = text("assistant", f"Round {number // 10}: looking up nine more.")
            messages = [text("user", f"Go on with batch {number // 10}.")]
            children.append(model_call(start, 55, "gpt-4o-mini", messages, answer, usage=tokens(900 + number, 40)))
        else:
            result = {"row": number, "ok": True}
            children.append(tool_call(start, 9 + number % 40, number, "look_up", {"row": number}, result=result))
    return frame("turn", "invoke_agent batch", 0, count * 7.0 + 60, children=children)


def nested(depth: int) -> Fields:
    """A chain of frames, each inside the one before."""
    inner = frame("step", f"level {depth - 1}", depth - 1, 1.0)
    for level in reversed(range(depth - 1)):
        inner = frame("step", f"level {level}", level, 2.0 * (depth - level), children=[inner])
    return inner


def lines(root: Fields) -> list[str]:
    """The lines of a trace."""
    header = {"runtime": "prompty-python", "version": "0.1", "lines": 1}
    return [json.dumps(header), *(json.dumps(event) for event in _events(root))]


def _events(root: Fields) -> Iterator[Fields]:
    waiting: list[tuple[Fields, str | None, bool]] = [(root, None, True)]
    while waiting:
        one, parent, starts = waiting.pop()
        if not starts:
            told = ("__time", "result", "error", "__usage", "wire")
            yield {"end": {"id": one["id"], **{name: one[name] for name in told if name in one}}}
            continue
        known = {
            name: one[name] for name in ("name", "title", "id", "signature", "attributes", "inputs") if name in one
        }
        yield {
            "start": {
                **known,
                "parent": parent,
                "__time": {"start": one["__time"]["start"], "end": None, "duration": None},
            }
        }
        waiting.append((one, parent, False))
        waiting += [(child, one["id"], True) for child in reversed(one.get("__frames", []))]


def save(root: Fields, folder: Path, name: str = "day-out.20261115.064017.jsonl") -> Path:
    file = folder / name
    file.write_text("\n".join(lines(root)) + "\n", encoding="utf-8")
    return file
