"""The stages from a file to a result, in order.

load (files, frontmatter, source_map, references, definitions, compose) → model_override → validate → prepare (render →
parse) → request. Each turns data into data; only `files` opens files. Beside them: `variants`, `packages`, `dotenv` and
`version_1`, which few prompts need, `history`, which repairs messages, and `build` and `migrate`, which write files.
"""
