from prompty import tool

BOOKS = {
    "dragons": ["A Wizard of Earthsea", "The Hobbit"],
    "ships": ["Moby-Dick"],
}
ORDERS: list[tuple[str, int]] = []


@tool
def find_books(topic: str) -> list[str]:
    return BOOKS.get(topic, [])


@tool
def order_book(title: str, copies: int) -> str:
    ORDERS.append((title, copies))
    return f"ordered {copies} copies of {title}"
