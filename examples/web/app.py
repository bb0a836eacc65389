"""A chat service. Answers arrive as server-sent events, and a person approves payments: uvicorn app:app."""

import json
import os
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

from fastapi import FastAPI, HTTPException
from fastapi.responses import StreamingResponse
from pydantic import BaseModel

from prompty import AsyncPromptyStream, Paused, PromptyError, deny, resume_async, turn_async
from prompty.events import TextDelta, ToolFinished

PROMPT = "bank.prompty"
MODEL = os.environ.get("MODEL")

app = FastAPI()
waiting: dict[str, Paused] = {}  # a service with several processes keeps these in its database


class Question(BaseModel):
    """What a person asks."""

    question: str


class Decision(BaseModel):
    """What a person says about the calls that wait."""

    approve: bool


def pay(to: str, amount: int) -> str:
    """Pay an amount of euros."""
    return f"paid {amount} to {to}"


@app.post("/chat")
async def chat(body: Question) -> StreamingResponse:
    """Start a turn."""
    return respond(await turn_async(PROMPT, {"question": body.question}, tools=[pay], stream=True, model=MODEL))


@app.post("/approvals/{approval}")
async def decide(approval: str, body: Decision) -> StreamingResponse:
    """Continue a turn that waits, once."""
    paused = waiting.pop(approval, None)
    if paused is None:
        raise HTTPException(404, "No turn waits for this approval.")
    verdicts = [body.approve or deny("A person said no.")] * len(paused.pending)
    return respond(await resume_async(PROMPT, paused, verdicts, tools=[pay], stream=True, model=MODEL))


def respond(stream: AsyncPromptyStream[Any]) -> StreamingResponse:
    """Send what happens in a turn as it happens."""
    return StreamingResponse(send_events(stream), media_type="text/event-stream")


async def send_events(stream: AsyncPromptyStream[Any]) -> AsyncIterator[str]:
    """Yield the text, the tool results, and at the end either `done` or `approval`."""
    async with stream:  # a client that leaves ends the turn
        try:
            async for event in stream.events():
                if isinstance(event, TextDelta):
                    yield format_event("text", event.text)
                elif isinstance(event, ToolFinished):
                    yield format_event("tool", {"name": event.call.name, "result": event.result.text})
            result = await stream.result()
        except PromptyError as error:
            yield format_event("error", str(error))
            return
    if isinstance(result, Paused):
        approval = uuid4().hex
        waiting[approval] = result
        calls = [{"name": call.name, "arguments": dict(call.arguments)} for call in result.pending]
        yield format_event("approval", {"id": approval, "calls": calls})
    else:
        yield format_event("done", {"output_tokens": stream.usage.output_tokens})


def format_event(name: str, data: object) -> str:
    """Return one server-sent event."""
    return f"event: {name}\ndata: {json.dumps(data)}\n\n"
