from prompty import ToolContext, tool


@tool
def pay(amount: int, context: ToolContext) -> str:
    return f"paid {amount} under the key {context.key}"
