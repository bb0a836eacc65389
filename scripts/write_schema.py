"""Write the JSON Schemas of a .prompty file's frontmatter and of a test file from their definitions."""

import json
from pathlib import Path

from pydantic import BaseModel

from prompty.cases.case_file import CaseFile
from prompty.model.agent import Frontmatter

FOLDER = Path(__file__).parent.parent / "schemas"
PATH = FOLDER / "prompty.schema.json"
TEST_PATH = FOLDER / "test.schema.json"
EXAMPLE = json.loads(Path(__file__).with_name("case_file_example.json").read_text(encoding="utf-8"))


def _write(model: type[BaseModel], title: str, **head: object) -> str:
    schema = model.model_json_schema(by_alias=True, mode="validation")
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title, **head}
    return json.dumps({**schema, **head}, indent=2, ensure_ascii=False) + "\n"


def schema_text() -> str:
    return _write(Frontmatter, "Frontmatter of a .prompty file")


def case_schema_text() -> str:
    return _write(CaseFile, "Tests of a prompt (.test.yaml)", examples=[EXAMPLE])


if __name__ == "__main__":
    PATH.write_text(schema_text(), encoding="utf-8")
    TEST_PATH.write_text(case_schema_text(), encoding="utf-8")
