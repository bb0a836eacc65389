"""The stages in order; read this folder to learn the product.

load (files, frontmatter, source_map, references, definitions) → validate → prepare (render → parse → rich_inputs) →
request → process. Each turns data into data; only `files` opens files.
"""
