import prompty

with prompty.invoke("person.prompty", {"text": "Ada is 36."}, stream=True) as stream:
    for value in stream.partials():
        print(value)
