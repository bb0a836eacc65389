import prompty

print(prompty.invoke("advise.prompty", {"topic": "dragons", "age": 9}))
