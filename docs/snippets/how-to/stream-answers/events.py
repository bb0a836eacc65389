import prompty
from prompty.events import Done, TextDelta

with prompty.invoke("answer.prompty", {"question": "What is a monad?"}, stream=True) as stream:
    for event in stream.events():
        match event:
            case TextDelta(text=text):
                print("text:", repr(text))
            case Done(messages=messages):
                print("done:", len(messages), "messages")
