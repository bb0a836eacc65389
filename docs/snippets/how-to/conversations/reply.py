import prompty

history = [
    {"role": "user", "content": "Which book about dragons is good?"},
    {"role": "assistant", "content": "Read A Wizard of Earthsea."},
]
print(prompty.invoke("reply.prompty", {"history": history, "question": "What did I ask?"}))
