from dbos import DBOS, SetWorkflowID
from prompty import ToolContext
from prompty.durable.dbos import turn


def pay(amount: int, context: ToolContext) -> str:
    return f"paid {amount} under the key {context.key}"


@DBOS.step()
async def load_order(number: int) -> dict[str, int]:
    return {"number": number, "price": 40}


@DBOS.workflow()
async def refund(number: int) -> str:
    order = await load_order(number)
    return await turn("refund.prompty", {"order": order}, tools=[pay])


if __name__ == "__main__":
    DBOS(config={"name": "shop", "system_database_url": "sqlite:///shop.db"})
    DBOS.launch()
    with SetWorkflowID("refund-7"):
        handle = DBOS.start_workflow(refund, 7)
    print(handle.get_result())
