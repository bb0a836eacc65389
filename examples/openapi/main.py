"""Ask an agent that can use an HTTP service: python main.py [QUESTION]."""

import os
import sys

from prompty import turn
from prompty.events import Event, ToolFinished
from prompty.openapi import allow


def show(event: Event) -> None:
    """Print each request to the service with its answer."""
    if isinstance(event, ToolFinished):
        print(f"  {event.call.name}({event.call.arguments}) -> {event.result.text}")


def main(question: str) -> None:
    """Allow the service on this machine, and run the turn."""
    allow(hosts=["127.0.0.1"])  # by default, tools reach public addresses over https only
    print(turn("clothes.prompty", {"question": question}, on_event=show, model=os.environ.get("MODEL")))


if __name__ == "__main__":
    main(" ".join(sys.argv[1:]) or "What should I wear in Oslo?")
