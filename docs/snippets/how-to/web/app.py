from collections.abc import AsyncIterator

from fastapi import FastAPI
from fastapi.responses import StreamingResponse

import prompty

app = FastAPI()


async def stream_answer(question: str) -> AsyncIterator[str]:
    async with await prompty.turn_async("answer.prompty", {"question": question}, stream=True) as stream:
        async for text in stream:
            yield text


@app.get("/ask")
async def ask(question: str) -> StreamingResponse:
    return StreamingResponse(stream_answer(question), media_type="text/plain")
