"""Write data as YAML that reads back as the same data, for generated test files and prompts."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import yaml

from prompty.cases.reading import RULES, refers_to_file
from prompty.safety.yaml import YamlError, read_yaml

_WIDTH = 120


def write_yaml(data: object) -> str:
    """Write YAML. Some characters, such as U+0085, must be escaped to be read back."""
    text: str = yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=_WIDTH)
    return text if _reads_back(text, data) else yaml.dump(data, Dumper=_Dumper, sort_keys=False, width=_WIDTH)


def find_file_reference(value: object) -> str | None:
    """Return a text in the data that a test file would read as a file reference, or None."""
    return next(filter(refers_to_file, _list_texts(value)), None)


def _reads_back(text: str, data: object) -> bool:
    try:
        return read_yaml(text, RULES)[0] == data
    except YamlError:
        return False


def _list_texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for entry in value.values():
            yield from _list_texts(entry)
    elif isinstance(value, Sequence):
        for entry in value:
            yield from _list_texts(entry)


class _Dumper(yaml.SafeDumper):
    """Writes equal values again, instead of as aliases."""

    def ignore_aliases(self, data: Any) -> bool:
        return True
