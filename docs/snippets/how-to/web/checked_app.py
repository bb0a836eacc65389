from fastapi import FastAPI, HTTPException

import prompty
from prompty.errors import InputError

app = FastAPI()


@app.post("/ask")
async def ask(inputs: dict[str, object]) -> dict[str, str]:
    try:
        return {"answer": await prompty.turn_async("answer.prompty", inputs)}
    except InputError as error:
        raise HTTPException(422, str(error)) from error
