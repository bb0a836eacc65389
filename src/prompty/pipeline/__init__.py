"""The stages in order; read this folder to learn the product.

load (frontmatter, source_map, yaml_data, references, definitions) → validate → prepare (render → parse → rich_inputs)
→ request → process. Each turns data into data; only `load` and `references` open files.
"""
