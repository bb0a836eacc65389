import prompty
from prompty.events import ToolFinished
from prompty.tools import register_tool

red, blue = prompty.Registry(), prompty.Registry()
register_tool("balance", lambda: "10 euros", registry=red)
register_tool("balance", lambda: "20 euros", registry=blue)


def show(event: object) -> None:
    if isinstance(event, ToolFinished):
        print(event.result.text)


for registry in (red, blue):
    prompty.turn(prompty.load("account.prompty", registry=registry), on_event=show)
