import prompty

result = prompty.invoke("ask.prompty", {"question": "How high is the tide today?"}, details=True)
print(result.value)
for citation in result.citations:
    passage = result.value[citation.start : citation.end]
    print(f"{passage!r} is from {citation.title}, {citation.url}")
for call in result.provider_calls:
    print(call.tool, call.status, call.input["queries"])
print(result.usage.requests, result.cost)
