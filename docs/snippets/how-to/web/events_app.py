import json
from collections.abc import AsyncIterator

from fastapi import FastAPI
from fastapi.responses import StreamingResponse

import prompty
from prompty.events import TextDelta, ToolStarted

app = FastAPI()


def encode(**fields: object) -> str:
    return f"data: {json.dumps(fields)}\n\n"


async def stream_events(question: str) -> AsyncIterator[str]:
    try:
        async with await prompty.turn_async("answer.prompty", {"question": question}, stream=True) as stream:
            async for event in stream.events():
                match event:
                    case TextDelta(text=text):
                        yield encode(text=text)
                    case ToolStarted(call=call):
                        yield encode(tool=call.name)
    except prompty.PromptyError as error:
        yield encode(error=type(error).__name__)


@app.get("/ask")
async def ask(question: str) -> StreamingResponse:
    return StreamingResponse(stream_events(question), media_type="text/event-stream")
