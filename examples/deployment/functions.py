"""The functions that the workers run."""

from prompty import tool


@tool(idempotent=True)
def find_order(number: int) -> dict[str, object]:
    """Return an order."""
    return {"number": number, "price": 40, "days": 12}
