import prompty
from prompty.memory import SqliteMemory

store = SqliteMemory("sessions.db")
for question in ("Which book about dragons is good?", "What did I ask?"):
    print(prompty.turn("chat.prompty", {"question": question}, memory=store, session_id="ada"))

for message in store.load("ada"):
    print(message["role"], "-", message["content"])
