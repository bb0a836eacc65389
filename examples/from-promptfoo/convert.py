"""Convert a promptfoo config: `python convert.py CONFIG FOLDER`.

Writes a .prompty file for each prompt, with its cases beside it, and prints what it leaves out. It runs nothing that
the config names, and overwrites no file. Copy it, and add the assertions that your configs use.
"""

import json
import re
import sys
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import yaml

Data = dict[str, Any]
VARIABLE = re.compile(r"(?<!\{)\{\{\s*(\w+)\s*\}\}(?!\})")
TAG = re.compile(r"\{[{%#]")
ROLES = ("system", "developer", "user", "assistant")
ROLE_LINE = re.compile(rf"(?mi)^[\s#]*({'|'.join(ROLES)}|tool)\b[^\n]*:\s*$")
PROVIDER = re.compile(r"(openai|anthropic):(?:(?:chat|messages|responses):)?([\w.-]+)")
OPTIONS = {"temperature": "temperature", "max_tokens": "maxOutputTokens"}
CHECKS: dict[str, Callable[[Any], Data]] = {
    "equals": lambda value: {"equals": value},
    "contains": lambda value: {"contains": value},
    "icontains": lambda value: {"contains": value, "ignore_case": True},
    "not-contains": lambda value: {"not_contains": value},
    "not-icontains": lambda value: {"not_contains": value, "ignore_case": True},
    "contains-all": lambda value: {"contains": value},
    "contains-any": lambda value: {"any_of": [{"contains": entry} for entry in value]},
    "starts-with": lambda value: {"regex": f"^{re.escape(value)}"},
    "regex": lambda value: {"regex": value},
    "is-json": lambda value: {"json_schema": value or {}},
    "cost": lambda threshold: {"cost": {"max": threshold}},
    "latency": lambda threshold: {"seconds": {"max": threshold / 1000}},
}
LISTS, LIMITS = ("contains-all", "contains-any"), ("cost", "latency")
dump = partial(yaml.safe_dump, stream=None, sort_keys=False, allow_unicode=True)


def convert_assertion(assertion: Data, variables: dict[str, str]) -> tuple[str, Data]:
    """Return the level and the check of an assertion. Every check must hold, so only the weight 0 matters."""
    kind = assertion.get("type")
    if kind not in CHECKS:
        raise ValueError(f"`{kind}` needs a judge, or a function of yours")
    key, wanted = ("threshold", (int, float)) if kind in LIMITS else ("value", list if kind in LISTS else str)
    if (unknown := assertion.keys() - {"type", key, "weight", "metric", "description"}) or assertion.get("weight") == 0:
        raise ValueError(f"`{kind}` has `{min(unknown, default='weight: 0')}`")
    value = fill(assertion.get(key), variables)
    if kind == "is-json":
        value = json.loads(value) if isinstance(value, str) else value
    elif not isinstance(value, wanted):
        raise ValueError(f"`{kind}` has a `{key}` of another type")
    return "live" if kind == "latency" else "replay", CHECKS[kind](value)


def fill(value: Any, variables: dict[str, str]) -> Any:
    """Return a value with the variables of its test."""
    if isinstance(value, list):
        return [fill(entry, variables) for entry in value]
    if not isinstance(value, str):
        return value
    if value.startswith("file://") or TAG.search(VARIABLE.sub("", value)) or {*VARIABLE.findall(value)} - {*variables}:
        raise ValueError(f"`{value}` is a file, or more than the variables of its test")
    return VARIABLE.sub(lambda found: variables[found[1]], value)


def convert_cases(config: Data, left: list[str]) -> Iterator[Data]:
    """Yield the cases, one for each combination of the lists in `vars`."""
    default = config.get("defaultTest") or {}
    for number, test in enumerate(config["tests"], 1):
        given = {**(default.get("vars") or {}), **(test.get("vars") or {})}
        choices = [value if isinstance(value, list) else [value] for value in given.values()]
        texts = [[entry if isinstance(entry, str) else json.dumps(entry) for entry in choice] for choice in choices]
        if any(text.startswith("file://") or TAG.search(text) for choice in texts for text in choice):
            left.append(f"test {number}: a variable is a file or a template")
            continue
        left += [f"test {number}: `{key}`" for key in test if key not in ("description", "vars", "assert")]
        for count, row in enumerate(product(*texts), 1):
            expect: Data = {}
            for assertion in [*(default.get("assert") or []), *(test.get("assert") or [])]:
                try:
                    level, check = convert_assertion(assertion, dict(zip(given, row, strict=True)))
                    expect.setdefault(level, []).append(check)
                except ValueError as reason:
                    left.append(f"test {number}: {reason}")
            name = f"{number}.{count} {test.get('description', 'case')}"
            yield {"name": name, "inputs": dict(zip(given, row, strict=True)), "expect": expect}


def convert_models(config: Data, left: list[str]) -> list[Data]:
    """Return the models of the config. Only the first keeps its options."""
    models: list[Data] = []
    for provider in config.get("providers") or []:
        entry = provider if isinstance(provider, dict) else {"id": provider}
        if not (found := PROVIDER.fullmatch(str(entry.get("id")))):
            left.append(f"provider `{entry.get('id')}`: name it in `model:` of the prompt")
            continue
        given, known = entry.get("config") or {}, {} if models else OPTIONS
        left += [f"provider `{found[0]}`: `{key}`" for key in given if key not in known]
        options = {known[key]: value for key, value in given.items() if key in known}
        models.append({"provider": found[1], "id": found[2], **({"options": options} if options else {})})
    return models


def convert_prompt(prompt: Data) -> str:
    """Return the body of a prompt."""
    raw = prompt["raw"].strip()
    messages = json.loads(raw) if raw.startswith("[") else [{"role": "user", "content": raw}]
    for message in messages:
        text = message["content"]
        if not isinstance(text, str) or message["role"] not in ROLES or text.startswith("file://"):
            raise ValueError("it has more than texts, or its text is a file")
        if ROLE_LINE.search(text) or TAG.search(VARIABLE.sub("", text)):
            raise ValueError("its text has a role, or a tag that is not a variable")
    return "\n".join(f"{message['role']}:\n{message['content'].strip()}\n" for message in messages)


def convert(source: Path, folder: Path) -> None:
    """Write the files of each prompt in a config, and print what is left out."""
    config = yaml.safe_load(source.read_text(encoding="utf-8"))
    if "${" in json.dumps(config, default=str) or any(not isinstance(test, dict) for test in config["tests"]):
        sys.exit(f"{source} has tests in a file, or `${{`, which prompty reads as a reference. Write it by hand.")
    left = [f"`{key}`" for key in config if key not in ("description", "prompts", "providers", "defaultTest", "tests")]
    cases, models = list(convert_cases(config, left)), convert_models(config, left)
    names = [f"{model['provider']}:{model['id']}" for model in models]
    defaults = {"defaults": {"models": names}} if len(models) > 1 else {}
    for number, entry in enumerate(config["prompts"], 1):
        prompt = entry if isinstance(entry, dict) else {"raw": entry}
        name = re.sub(r"\W+", "-", prompt.get("label", "")).strip("-") or f"{source.stem}-{number}"
        try:
            body = convert_prompt(prompt)
        except ValueError as reason:
            left.append(f"prompt {name}: {reason}")
            continue
        inputs = {key: {"kind": "string", "default": ""} for key in sorted({*VARIABLE.findall(body)})}
        head = dump({"name": name, **({"model": models[0]} if models else {}), "inputs": inputs})
        own = [{**case, "inputs": {key: case["inputs"].get(key, "") for key in inputs}} for case in cases]
        files = {"prompty": f"---\n{head}---\n{body}", "test.yaml": dump({**defaults, "cases": own})}
        for suffix, text in files.items():
            with (folder / f"{name}.{suffix}").open("x", encoding="utf-8") as file:
                file.write(str(text))
        print(f"{name}: {len(cases)} cases")
    sys.stdout.writelines(f"left out: {line}\n" for line in dict.fromkeys(left))


if __name__ == "__main__":
    convert(Path(sys.argv[1]), Path(sys.argv[2]))
