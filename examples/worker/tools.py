"""What the jobs of this example can do."""

from prompty import ToolContext, tool

ORDERS = {"A-17": 40, "A-18": 250}


@tool(idempotent=True)
def look_up(order: str) -> str:
    """Return the price of an order. It may run again after a crash."""
    return f"{ORDERS[order]} euros" if order in ORDERS else "There is no such order."


@tool
def refund(order: str, amount: int, context: ToolContext) -> str:
    """Pay back. If its worker dies meanwhile, the job asks a person. `context.key` is the same if it runs again."""
    return f"paid {amount} euros back for {order} under the key {context.key}"


TOOLS = [look_up, refund]
