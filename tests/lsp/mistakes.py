"""Prompts with mistakes, whose problems must be the same on the command line and in each editor."""

FRONT = "---\nname: a\nmodel: gpt-6-luna\n"

MISTAKES = {
    "key": "---\nname: a\nmodle: gpt-6-luna\n---\nuser:\nhi\n",
    "variable": f"{FRONT}inputs:\n  name: {{kind: string}}\n---\nuser:\nhi {{{{ nam }}}}\n",
    "emoji": f"{FRONT}inputs:\n  name: {{kind: string}}\n---\nuser:\n😀 e\u0301 {{{{ nam }}}} {{{{ name }}}}\n",
    "syntax": f"{FRONT}---\nuser:\nhi {{{{ name\n",
    "yaml": "---\nname: [a\nmodel: gpt-6-luna\n---\nuser:\nhi\n",
    "crlf": f"{FRONT}---\nuser:\nhi {{{{ nam }}}}\n".replace("\n", "\r\n"),
    "kind": f"{FRONT}inputs:\n  name: {{kind: strng}}\n---\nuser:\nhi {{{{ name }}}}\n",
    "filter": f"{FRONT}inputs:\n  name: {{kind: string}}\n---\nuser:\nhi {{{{ name | uper }}}}\n",
}
