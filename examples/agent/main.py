"""Answer a question about orders with five tools: python main.py [QUESTION]."""

import os
import sys

from prompty import tool, turn
from prompty.events import Event, ToolFinished

ORDERS: dict[int, dict[str, object]] = {
    7: {"email": "ada@example.com", "article": "lamp", "price": 40},
    8: {"email": "bob@example.com", "article": "desk", "price": 180},
}
PARCELS = {7: "at the customs office, expected on Friday"}
NOTES: list[tuple[int, str]] = []


def find_orders(email: str) -> list[int]:
    """Return the numbers of a customer's orders."""
    return [number for number, order in ORDERS.items() if order["email"] == email]


def get_order(number: int) -> dict[str, object]:
    """Return what was ordered, and for how much."""
    return ORDERS[number]


def track_parcel(number: int) -> str:
    """Return where the parcel of an order is."""
    return PARCELS.get(number, "not sent yet")


@tool(sequential=True)
def write_note(number: int, text: str) -> str:
    """Leave a note on an order for colleagues."""
    NOTES.append((number, text))
    return "noted"


@tool(timeout=5)
def get_opening_hours(day: str) -> str:
    """Return when the shop is open on a day of the week."""
    return "closed" if day.lower() == "sunday" else "9 to 17"


def show(event: Event) -> None:
    """Print each tool call with its result."""
    if isinstance(event, ToolFinished):
        print(f"  {event.call.name}({event.call.arguments}) -> {event.result.text}")


def main(question: str) -> None:
    """Run the tools that the model calls, until it answers."""
    answer = turn(
        "shop.prompty",
        {"question": question, "email": "ada@example.com"},
        tools=[find_orders, get_order, track_parcel, write_note, get_opening_hours],
        on_event=show,
        max_iterations=8,
        model=os.environ.get("MODEL"),
    )
    print(answer)


if __name__ == "__main__":
    main(" ".join(sys.argv[1:]) or "Where is my lamp?")
