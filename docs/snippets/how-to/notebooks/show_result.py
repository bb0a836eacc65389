import prompty

result = prompty.invoke("greet.prompty", {"name": "Ada"}, details=True)
result
