import prompty

agent = prompty.load("answer.prompty", variant="claude")
print(agent.model.id)
print(prompty.variants("answer.prompty"))
