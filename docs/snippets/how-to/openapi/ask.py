import prompty
from prompty.events import ToolFinished
from prompty.openapi import allow


def show(event: object) -> None:
    if isinstance(event, ToolFinished):
        print("service:", event.result.text)


allow(hosts=["127.0.0.1:8000"])
print(prompty.turn("shop.prompty", on_event=show))
