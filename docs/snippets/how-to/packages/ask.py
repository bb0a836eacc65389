import prompty

agent = prompty.load("pkg:acme_prompts/answer.prompty")
claude = prompty.load("pkg:acme_prompts/answer.prompty", variant="claude")
print(agent.model.id, claude.model.id)
