"""Check facts/models.yaml. Run it, or call `check` from a test: it returns every problem as a sentence."""

import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from datetime import date
from pathlib import Path
from typing import Any

import yaml

FILE = Path(__file__).parents[1] / "facts" / "models.yaml"
Test = Callable[[object], bool]
Facts = dict[str, dict[str, Any]]
CONFIDENCE = ("unknown", "secondary", "measured", "official")  # weakest first
HOSTS = {
    "openai",
    "azure",
    "anthropic",
    "bedrock",
    "bedrock-anthropic",
    "gemini",
    "groq",
    "mistral",
    "openrouter",
    "deepseek",
    "cerebras",
    "xai",
    "compatible",
}
EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max", "default")
APIS = ("chat", "responses", "messages", "embeddings", "images", "audio")
OK = ("ok", "refused", "unknown")
SAMPLING = (
    "ok",
    "effort-none-only",
    "default-only",
    "refused",
    "old-version-only",
    "ignored-while-thinking",
    "unknown",
)
ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@-]*")
VERSION = re.compile(r"\d{4}-\d\d-\d\d(-preview)?")


def one(*values: str) -> Test:
    return lambda value: isinstance(value, str) and value in values


def some(*values: str) -> Test:
    return lambda value: isinstance(value, list) and len(set(value)) == len(value) and set(value) <= set(values)


def integer(value: object) -> bool:
    return type(value) is int and value > 0


def number(value: object) -> bool:
    return type(value) in (int, float) and float(str(value)) > 0


def is_date(value: object) -> bool:
    return type(value) is date


def flag(value: object) -> bool:
    return type(value) is bool


def model_id(value: object) -> bool:
    return isinstance(value, str) and ID.fullmatch(value) is not None


def version(value: object) -> bool:
    return isinstance(value, str) and VERSION.fullmatch(value) is not None


FACTS: dict[str, Test] = {
    # life
    "status": one("current", "legacy", "deprecated", "ended", "invalid-id", "unknown"),
    "ends": is_date,
    "not_before": is_date,
    "released": is_date,
    "replacement": model_id,
    # where it answers
    "apis": some(*APIS),
    "batch": flag,
    "zero_retention": one("ok", "refused"),
    # function tools
    "tools_chat_unset": one(*OK),
    "tools_chat_none": one(*OK),
    "tools_chat_effort": one(*OK),
    "tools_responses": one(*OK),
    "tools": one(*OK),
    "forced_tool_choice": one("ok", "refused", "refused-while-thinking", "unknown"),
    "parallel_tools": flag,
    "strict_tools": one(*OK),
    "tool_history": one("reasoning-required", "signature-required"),
    "call_ids": one("nine-alphanumeric"),
    # sampling and stopping
    "temperature": one(*SAMPLING),
    "top_p": one(*SAMPLING),
    "top_k": one(*SAMPLING),
    "penalties": one(*SAMPLING),
    "temperature_with_top_p": one(*OK),
    "logprobs": one("ok", "effort-none-only", "refused", "ignored", "unknown"),
    "logit_bias": one("ok", "effort-none-only", "refused", "ignored", "unknown"),
    "seed": one(*OK),
    "stop": one(*OK),
    "max_tokens_on_chat": one(*OK),
    # reasoning
    "thinks": one("always", "default", "optional", "no"),
    "effort_chat": some(*EFFORTS),
    "effort_responses": some(*EFFORTS),
    "effort_messages": some(*EFFORTS),
    "effort_default": one(*EFFORTS),
    "thinking_types": some("adaptive", "enabled", "disabled", "between_tools"),
    "thinking_off_max_effort": one(*EFFORTS),
    "thinking_blocks_bound": flag,
    "thinking_blocks_bound_to_model": flag,
    "reasoning_context_default": one("all_turns", "current_turn"),
    "reasoning_in": one("think-tags"),
    # messages
    "prefill": one(*OK),
    "system_role": one(*OK),
    "mid_system_role": one("ok", "ignored", "refused", "unknown"),
    # sizes
    "max_output": integer,
    "max_input": integer,
    "context": integer,
    "price_step": integer,
    # output and input
    "structured": some(*APIS),
    "media_in": some("text", "image", "pdf", "audio"),
    "schema_refs": one("inline-only"),
    "image_response_format": one(*OK),
    # caching
    "cache_kind": one("implicit", "explicit", "both"),
    "cache_min": integer,
    "cache_write_factor": number,
    "cache_write_factor_1h": number,
    "cache_read_factor": number,
    "cache_ttl_minutes": integer,
}
HOST_FACTS: dict[str, Test] = {
    "output_field_chat": one("max_completion_tokens", "max_tokens"),
    "output_field_responses": one("max_output_tokens"),
    "output_field_messages": one("max_tokens"),
    "output_field_required": flag,
    "effort_field_chat": one("reasoning_effort"),
    "effort_field_responses": one("reasoning.effort"),
    "effort_field_messages": one("output_config.effort"),
    "effort_values": some(*EFFORTS),
    "effort_max_on_chat": one(*OK),
    "responses_lacks": some(
        "stop", "seed", "frequency_penalty", "presence_penalty", "logit_bias", "n", "reasoning_effort"
    ),
    "responses_stores": flag,
    "responses_store_days": integer,
    "lifecycle_field": one("shutdown_date", "retires_at"),
    "notice_days": integer,
    "system_role": one(*OK),
    "schema_depth": integer,
    "schema_properties": integer,
    "schema_lacks": some("prefixItems", "oneOf", "root-anyOf", "lookaround", "untyped-items"),
    "model_in_request": flag,
    "documents_on_chat": one(*OK),
    "max_completion_tokens_since": version,
    "stream_options_since": version,
    "parallel_tool_calls_since": version,
    "reasoning_models_since": version,
    "responses_since": version,
    "sampling_2023_06_01": one("by-model"),
    "sampling_2026_10_21": one("refused"),
    "temperature_with_top_p": one(*OK),
    "thinking_budget_min": integer,
    "stream_above": integer,
    "cache_kind": one("implicit", "explicit", "both"),
    "cache_marks": integer,
    "cache_write_factor": number,
    "cache_write_factor_1h": number,
    "cache_read_factor": number,
    "same_refusals": flag,
    "own_dates": flag,
    "unknown_fields": one("refused", "ignored"),
    "thinking_budgets_forwarded": flag,
    "thinking_blocks_checked": flag,
    "model_rules": one("none"),
}
CHOICES: dict[str, Test] = {
    "default_model_openai": model_id,
    "default_model_anthropic": model_id,
    "effort_for_plain_prompts": one(*EFFORTS),
    "max_tokens_thinking": integer,
    "max_tokens_other": integer,
    "small_output": integer,
    "warn_days_before_end": integer,
    "max_age_months": integer,
    "replacement_claude-sonnet-4-5": model_id,
}
BANNED = re.compile(r"\b(stored|live|our|we|us|I)\b|(^|\s)~?/\w", re.I)  # no remarks about this project, no paths


class Loader(yaml.CSafeLoader):
    """YAML without repeated keys."""


def _construct_mapping(loader: Loader, node: yaml.MappingNode) -> dict[Any, Any]:
    keys = [loader.construct_object(key) for key, _ in node.value]
    for key, times in Counter(keys).items():
        if times > 1:
            raise yaml.YAMLError(f"key written twice: {key} (line {node.start_mark.line + 1})")
    return yaml.CSafeLoader.construct_mapping(loader, node, deep=True)


Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _construct_mapping)


def load(path: Path = FILE) -> dict[str, Any]:
    data: dict[str, Any] = yaml.load(path.read_text(encoding="utf-8"), Loader)  # noqa: S506  it derives from CSafeLoader
    return data


def unwrap(host: str, name: str) -> str:
    """Take a fine-tune, a vendor prefix or a platform suffix off an id. The date stays."""
    if name.startswith("ft:"):
        name = name.split(":")[1]
    if host == "gemini":
        name = name.removeprefix("models/")
    if host == "openrouter":
        name = name.lstrip("~").split("/", 1)[-1].split(":")[0]
    if host in ("bedrock", "bedrock-anthropic"):
        name = re.sub(r"^([a-z-]+\.)*(openai|anthropic)\.", "", name)
        name = re.sub(r"(-v\d+)?:\d+$|-v\d+$", "", name)
    return name


def normalize(host: str, name: str) -> str:
    """Return what `match` is compared with: unwrapped, without a trailing date, in lower case."""
    return re.sub(r"(-\d{4}-\d\d-\d\d|-\d{8}|@\d{8})$", "", unwrap(host, name)).lower()


def find(data: Mapping[str, Any], host: str, name: str) -> Facts:
    """Return the facts of a model: the first row that matches, and over it the row that lists the exact id."""
    rows = [row for row in data["models"] if row["host"] == host]
    plain, exact = normalize(host, name), {name.lower(), unwrap(host, name).lower()}
    matching = (row["facts"] for row in rows if "match" in row and re.fullmatch(row["match"], plain, re.I))
    facts: Facts = dict(next(matching, {}))
    for row in rows:
        if exact & {listed.lower() for listed in row.get("ids", ())}:
            facts.update(row["facts"])
    return facts


def check(path: Path = FILE) -> list[str]:
    """Return all problems of the file."""
    try:
        return Checker(load(path)).problems
    except (yaml.YAMLError, ValueError) as error:
        return [f"not readable: {error}"]
    except (AttributeError, KeyError, TypeError, re.error) as error:
        return [f"not readable: wrong shape: {type(error).__name__}: {error}"]


class Checker:
    """Collects the problems of the data, and counts its facts by confidence."""

    def __init__(self, data: dict[str, Any]) -> None:
        self.problems: list[str] = []
        self.counts: Counter[str] = Counter()
        self._data, self._used, self._listed = data, set[str](), set[tuple[str, str]]()
        if not self._has_keys("file", data, ("schema", "checked", "sources", "hosts", "models", "choices")):
            return
        if data["schema"] != 2 or not is_date(data["checked"]):
            self._report("file", "schema must be 2 and checked a date")
            return
        for name, source in data["sources"].items():
            self._check_source(f"sources.{name}", source)
        for host, facts in data["hosts"].items():
            self._check_host("hosts", host)
            for key, fact in facts.items():
                self._check_fact(f"hosts.{host}", key, fact, HOST_FACTS)
        for position, row in enumerate(data["models"]):
            if self._has_keys(f"models[{position}]", row, ("host", "examples", "facts"), ("match", "ids")):
                self._check_row(f"{row['host']}:{(row['examples'] or ['?'])[0]}", row)
        for key, choice in data["choices"].items():
            self._check_choice(key, choice)
        self.problems += [f"sources.{name}: not used" for name in data["sources"] if name not in self._used]

    def _report(self, where: str, problem: str) -> None:
        self.problems.append(f"{where}: {problem}")

    def _has_keys(self, where: str, value: object, needed: tuple[str, ...], allowed: tuple[str, ...] = ()) -> bool:
        if not isinstance(value, dict):
            self._report(where, "not a mapping")
            return False
        missing = [key for key in needed if key not in value]
        for key in missing:
            self._report(where, f"{key} is missing")
        for key in value:
            if key not in needed and key not in allowed:
                self._report(where, f"unknown key {key}")
        return not missing

    def _check_host(self, where: str, host: str) -> None:
        if host not in HOSTS:
            self._report(where, f"unknown host {host}")

    def _check_words(self, where: str, text: object) -> None:
        if not isinstance(text, str) or len(text) > 160:
            self._report(where, "not a text of at most 160 characters")
        elif found := BANNED.search(text):
            self._report(where, f"{found.group()!r} does not belong in a public file")

    def _check_source(self, where: str, source: dict[str, Any]) -> None:
        self._has_keys(where, source, ("kind", "date"), ("date_is", "url", "package", "file", "about"))
        if source.get("kind") not in CONFIDENCE[1:]:
            self._report(where, f"kind {source.get('kind')!r} is not allowed")
        if ("url" in source) == ("package" in source) or ("file" in source) != ("package" in source):
            self._report(where, "needs a url, or a package and a file")
        if not str(source.get("url", "https://")).startswith("https://"):
            self._report(where, "url is not https")
        if source.get("date_is", "collected") != "collected":
            self._report(where, "date_is can only be collected")
        if "about" in source:
            self._check_words(f"{where}.about", source["about"])

    def _check_sources_of(self, where: str, fact: dict[str, Any]) -> dict[str, Any] | None:
        """Check the sources of a fact, and return the first, which carries the value."""
        keys, sources = fact["source"], self._data["sources"]
        if not isinstance(keys, list) or not keys:
            self._report(where, "source is not a list of keys")
            return None
        self._used.update(keys)
        for key in keys:
            if key not in sources:
                self._report(where, f"no source {key}")
        first: dict[str, Any] | None = sources.get(keys[0])
        if first and (fact["date"] != first.get("date") or fact.get("date_is") != first.get("date_is")):
            self._report(where, "date is not that of its first source")
        if not is_date(fact["date"]):
            self._report(where, "date is not YYYY-MM-DD")
        elif fact["date"] > self._data["checked"]:
            self._report(where, "date is after `checked`")
        if "note" in fact:
            self._check_words(f"{where}.note", fact["note"])
        return first

    def _check_fact(self, where: str, key: str, fact: dict[str, Any], table: Mapping[str, Test]) -> None:
        if key not in table:
            self._report(where, f"unknown fact {key}")
            return
        where = f"{where}.{key}"
        if not self._has_keys(where, fact, ("value", "confidence", "source", "date"), ("date_is", "note")):
            return
        if not table[key](fact["value"]):
            self._report(where, f"value {fact['value']!r} is not allowed")
        if fact["confidence"] not in CONFIDENCE:
            self._report(where, f"confidence {fact['confidence']!r} is not allowed")
            return
        self.counts[fact["confidence"]] += 1
        if (fact["value"] == "unknown") != (fact["confidence"] == "unknown"):
            self._report(where, "value and confidence must both be unknown, or neither")
        first = self._check_sources_of(where, fact)
        if first and CONFIDENCE.index(fact["confidence"]) > CONFIDENCE.index(first.get("kind", "unknown")):
            self._report(where, f"{fact['confidence']} is more than its first source can carry")

    def _check_row(self, where: str, row: dict[str, Any]) -> None:
        host = row["host"]
        self._check_host(where, host)
        if ("match" in row) == ("ids" in row):
            self._report(where, "needs match or ids, not both")
            return
        if not row["examples"] or not row["facts"]:
            self._report(where, "no examples or no facts")
        for key, fact in row["facts"].items():
            self._check_fact(where, key, fact, FACTS)
        self._check_ids(where, row) if "ids" in row else self._check_match(where, row)
        for name in row.get("ids", row["examples"]):
            for problem in find_contradictions(find(self._data, host, name), self._data["checked"]):
                self._report(f"{host}:{name}", problem)

    def _check_ids(self, where: str, row: dict[str, Any]) -> None:
        for name in row["ids"]:
            if not model_id(name):
                self._report(where, f"{name!r} is not an exact id")
            if (row["host"], name.lower()) in self._listed:
                self._report(where, f"{name} is listed twice")
            self._listed.add((row["host"], name.lower()))
        for example in row["examples"]:
            if example not in row["ids"]:
                self._report(where, f"example {example} is not among its ids")

    def _check_match(self, where: str, row: dict[str, Any]) -> None:
        if not (row["match"].startswith("^") and row["match"].endswith("$")):
            self._report(where, "match is not anchored")
        rows = [other for other in self._data["models"] if other["host"] == row["host"] and "match" in other]
        for example in row["examples"]:
            plain = normalize(row["host"], example)
            first = next((other for other in rows if re.fullmatch(other["match"], plain, re.I)), None)
            if first is not row:
                self._report(where, f"example {example} meets another row first, or none")

    def _check_choice(self, key: str, choice: dict[str, Any]) -> None:
        if key not in CHOICES:
            self._report("choices", f"unknown choice {key}")
        elif self._has_keys(f"choices.{key}", choice, ("value", "choice", "source", "date"), ("date_is", "note")):
            if choice["choice"] != "ours" or not CHOICES[key](choice["value"]):
                self._report(f"choices.{key}", "value or choice is not allowed")
            self._check_sources_of(f"choices.{key}", choice)


def find_contradictions(facts: Facts, today: date) -> Iterator[str]:
    """Yield the facts of one model that cannot all be true."""
    value = {key: fact["value"] for key, fact in facts.items() if "value" in fact}
    if "ends" in value and is_date(value["ends"]):
        wanted = "ended" if value["ends"] <= today else "deprecated"
        if value.get("status") != wanted:
            yield f"ends {value['ends']}, so status must be {wanted}"
    elif value.get("status") == "deprecated" and "ends" not in value and facts["status"]["confidence"] == "official":
        yield "deprecated by an official source, but without a date"
    lists = [value[key] for key in ("effort_chat", "effort_responses", "effort_messages") if key in value]
    if "effort_default" in value and lists and not any(value["effort_default"] in accepted for accepted in lists):
        yield "effort_default is in none of the effort lists"
    if value.get("thinks") == "always" and any("none" in accepted for accepted in lists):
        yield "thinks always, but takes effort none"
    if value.get("thinks") == "no" and any(lists):
        yield "does not think, but takes an effort"
    if "chat" not in value.get("apis", ["chat"]) and any(key.startswith("tools_chat") for key in value):
        yield "tools on chat, but chat is not among its apis"
    if value.get("thinks") == "always" and "disabled" in value.get("thinking_types", ()):
        yield "thinks always, but thinking can be disabled"
    if value.get("max_output", 0) > value.get("context", 10**9):
        yield "max_output is larger than context"


def is_old(data: Mapping[str, Any], fact: Mapping[str, Any]) -> bool:
    """Return True if a fact is older than `max_age_months`, so that it must not change a request (M4)."""
    checked, months = data["checked"], data["choices"]["max_age_months"]["value"]
    last = checked.year * 12 + checked.month - months
    written = fact["date"]
    return bool((written.year * 12 + written.month, written.day) < (last, checked.day))


def main() -> int:
    problems = check()
    print("\n".join(problems))
    data = load()
    counts = Checker(data).counts
    listed = ", ".join(f"{counts[confidence]} {confidence}" for confidence in reversed(CONFIDENCE))
    print(f"{len(data['models'])} rows, {len(data['sources'])} sources, {counts.total()} facts: {listed}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
