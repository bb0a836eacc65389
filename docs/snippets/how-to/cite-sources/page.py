from html import escape
from urllib.parse import urlsplit

import prompty
from prompty.messages import Citation


def to_html(citation: Citation) -> str:
    title = escape(citation.title or citation.source)
    if citation.url and urlsplit(citation.url).scheme in ("http", "https"):
        return f'<a href="{escape(citation.url)}" rel="noopener nofollow">{title}</a>'
    return title


result = prompty.invoke("ask.prompty", {"question": "How high is the tide today?"}, details=True)
print(escape(result.value), *map(to_html, result.citations), sep="\n")
