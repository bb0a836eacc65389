from dbos import DBOSClient
from prompty.durable.dbos import answer, find_pause

client = DBOSClient(system_database_url="sqlite:///shop.db")
for call in find_pause(client, "refund-7").pending:
    print("needs approval:", call.name, call.arguments)
answer(client, "refund-7", [True])
print(client.retrieve_workflow("refund-7").get_result())
