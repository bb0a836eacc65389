from datetime import timedelta

from prompty.durable.temporal import turn
from temporalio import workflow


@workflow.defn
class PayRent:
    @workflow.run
    async def run(self, month: str) -> str:
        return await turn("rent.prompty", {"month": month}, deadline=timedelta(days=1))
