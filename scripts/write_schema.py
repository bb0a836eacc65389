"""Write `schemas/prompty.schema.json`, the JSON Schema of the frontmatter, from the definitions in `prompty.model`."""

import json
from pathlib import Path

from prompty.model.agent import Frontmatter

PATH = Path(__file__).parent.parent / "schemas" / "prompty.schema.json"


def schema_text() -> str:
    schema = Frontmatter.model_json_schema(by_alias=True, mode="validation")
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Frontmatter of a .prompty file"}
    return json.dumps({**schema, **head}, indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    PATH.write_text(schema_text(), encoding="utf-8")
