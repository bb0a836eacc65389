"""Import tests of other tools: a promptfoo config, or a `.prompt.yml` of GitHub Models. Nothing that they name is run.

`promptfoo` reads drafts of prompts with their cases, and notes what has no counterpart. `writing` turns them into text.
"""
