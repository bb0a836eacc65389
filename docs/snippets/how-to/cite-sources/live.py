import prompty
from prompty.events import CitationAdded, ProviderCallStarted, TextDelta

stream = prompty.invoke("ask.prompty", {"question": "How high is the tide today?"}, stream=True)
for event in stream.events():
    match event:
        case ProviderCallStarted(call):
            print(f"({call.tool} …)")
        case TextDelta(text):
            print(text, end="")
        case CitationAdded(citation):
            print(f" [{citation.url}]")
print(len(stream.citations), "source")
