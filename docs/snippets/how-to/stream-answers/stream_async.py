import asyncio

import prompty


async def main() -> None:
    inputs = {"question": "What is a monad?"}
    async with await prompty.invoke_async("answer.prompty", inputs, stream=True) as stream:
        async for text in stream:
            print(text, end="", flush=True)
        print()


asyncio.run(main())
