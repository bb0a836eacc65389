"""The stages in order; read this folder to learn the product.

load (frontmatter, yaml_data, references, definitions) → validate → render → parse → rich → prepare; and `check`,
which says what is wrong with a file. Each turns data into data; only `load` and `references` open files.
"""
