"""The stages from a file to a result, in order.

load (files, frontmatter, source_map, references, definitions) → validate → prepare (render → parse → rich_inputs) →
request → process. Each turns data into data; only `files` opens files.
"""
