import prompty

agent = prompty.load("greet.prompty")
agent
