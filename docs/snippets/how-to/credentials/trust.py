import prompty

agent = prompty.load("answer.prompty", trusted_endpoints=["https://models.example"])
print(agent.name)
