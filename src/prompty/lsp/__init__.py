"""The language server, `prompty lsp`: what `check` finds, and help while you write a prompt, in any editor.

`wire` reads and writes messages, `documents` holds the texts of open files, and `server` answers requests. The imports
of a module that few requests need are late, because an editor waits for the first answer.
"""
