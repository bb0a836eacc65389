"""The template engine and the parser of a prompt (§2.8)."""

from typing import Annotated, Any

from pydantic import BeforeValidator

from prompty.model.definition import Definition


class Format(Definition):
    """The template engine."""

    kind: str = "jinja2"
    options: dict[str, Any] | None = None


class TemplateParser(Definition):
    """The parser that splits rendered text into messages."""

    kind: str = "prompty"
    options: dict[str, Any] | None = None


class Template(Definition):
    """The engine and the parser of a prompt."""

    format: Format = Format()
    parser: TemplateParser = TemplateParser()


def _from_text(value: Any) -> Any:
    return {"format": {"kind": value}} if isinstance(value, str) else value


TemplateField = Annotated[Template, BeforeValidator(_from_text, json_schema_input_type=str | Template)]
