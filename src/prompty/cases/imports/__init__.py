"""Import tests of other tools: a promptfoo config, or a `.prompt.yml` of GitHub Models.

`promptfoo` reads a config to drafts of prompts with their cases, and notes whatever has no counterpart. `writing` turns
drafts into the text of files, with the notes as comments. Nothing that a file names is run.
"""
