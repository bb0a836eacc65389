"""Import tests of other tools: a promptfoo config, a `.prompt.yml` of GitHub Models, or rows of CSV or JSONL.

`importing` chooses the reader by the file. Each reader returns an `Import`: drafts of prompts with their cases, and a
note for whatever has no counterpart. `writing` turns drafts into the text of files. Nothing that a file names is run.
"""
