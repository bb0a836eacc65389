"""Fit requests to what their model takes, and find what the model would refuse.

Only sampling options that the model refuses are left out, with a warning. Anything else is sent as the file says, and
`additionalProperties` cross unchanged: a stale fact must not block what the server would take.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any

from prompty.errors import RequestError, Severity
from prompty.model.agent import ModelOptions, PromptAgent
from prompty.model.message import Json
from prompty.model.tool import runs_at_provider
from prompty.providers import Api, RequestBase
from prompty.providers.facts import EFFORTS, ModelFacts, get_effort, get_tools_fact, read_package_facts
from prompty.providers.provider_tools import add_provider_tools
from prompty.wire.request import get_output_schema, list_dropped_options, map_options
from prompty.wire.structured import find_strict_one_of

# Sampling options: the fact about each, and the value that a server assumes.
_SAMPLING = {
    "temperature": ("temperature", 1),
    "top_p": ("top_p", 1),
    "top_k": ("top_k", None),
    "frequency_penalty": ("penalties", 0),
    "presence_penalty": ("penalties", 0),
}
# With one of these, the caller keeps the state of a conversation at the server.
_STORED = ("store", "background", "conversation", "previous_response_id")
_ENCRYPTED = "reasoning.encrypted_content"


def fit_request(agent: PromptAgent, api: Api) -> RequestBase:
    """Return what the requests of an agent to an API have in common, as its model takes it."""
    hosted = tuple([tool for tool in agent.tools if runs_at_provider(tool)])
    options, omitted = _fit_options(agent, api)
    chosen = agent.metadata.get("reasoning")
    return RequestBase(
        api=api,
        model=agent.model.id,
        options=options,
        omitted=omitted,
        output=get_output_schema(agent),
        hosted=hosted,
        reasoning=chosen if isinstance(chosen, str) else None,
        refusal=next(find_strict_one_of(agent), None),
    )


def _fit_options(agent: PromptAgent, api: Api) -> tuple[ModelOptions, dict[str, str]]:
    """Return an agent's options as its model takes them, and those that were left out, with the reason."""
    options, facts = agent.model.options, api.facts
    omitted: dict[str, str] = {}
    changes: dict[str, Any] = {}
    if facts is not None:
        for name, reason in _find_refused_sampling(options, api, facts):
            changes[name] = None
            if reason:
                omitted[_alias(name)] = reason
    if api.chosen:
        reason = f"Responses, which {(facts or agent.model).id} needs here, has no such option"
        omitted |= dict.fromkeys(list_dropped_options(options, api.options), reason)
    changes |= _fit_effort(options, api, facts, omitted)
    changes |= _fit_output_limit(options, api, facts)
    changes |= _fit_storage(options, api, facts, changes)
    if api.path and any(map(runs_at_provider, agent.tools)):  # a host's executor may have its own way to offer them
        extra = changes.get("additional_properties") or options.additional_properties or {}
        changes["additional_properties"] = add_provider_tools(agent, api, extra)
    return options.model_copy(update=changes) if changes else options, omitted


def _alias(name: str) -> str:
    return ModelOptions.model_fields[name].alias or name


def is_reasoning(facts: ModelFacts, effort: str | None) -> bool | None:
    """Return True if the model reasons with this effort, or None if that is not known."""
    if effort is not None:
        return effort != "none"
    if default := facts.known.get("effort_default"):
        return bool(default != "none")
    return {"always": True, "default": True, "no": False}.get(facts.known.get("thinks", ""))


def _find_refused_sampling(options: ModelOptions, api: Api, facts: ModelFacts) -> Iterator[tuple[str, str | None]]:
    """Yield the options that the model refuses, with the reason. A default value needs none: the server assumes it."""
    for name, (fact, default) in _SAMPLING.items():
        value = getattr(options, name)
        if value is None or name not in api.options:
            continue
        if reason := find_sampling_refusal(facts, facts.known.get(fact), get_effort(options)):
            yield name, None if value == default else reason


def find_sampling_refusal(facts: ModelFacts, fact: object, effort: str | None) -> str | None:
    """Return why the model refuses a sampling option whose fact has this value, or None."""
    if fact in ("refused", "default-only"):
        return f"{facts.id} refuses it"
    if fact == "effort-none-only" and is_reasoning(facts, effort):
        return f"{facts.id} takes it only with `reasoningEffort: none`"
    return None


def _fit_effort(options: ModelOptions, api: Api, facts: ModelFacts | None, omitted: dict[str, str]) -> dict[str, Any]:
    """Return the changes for `reasoningEffort`."""
    effort, known = options.reasoning_effort, facts.known if facts else {}
    if effort is None or "reasoning_effort" not in api.options:
        return {}
    if get_effort(options) != effort:
        return {"reasoning_effort": None}  # an explicit value in `additionalProperties` counts
    extra, accepted = options.additional_properties or {}, known.get(f"effort_{api.name}")
    is_off = known.get("thinks") == "no" or accepted == []
    can_disable = "disabled" in known.get("thinking_types", ()) and "thinking" not in extra
    if effort == "none" and is_off:
        return {"reasoning_effort": None}
    if api.name == "messages":
        return _fit_anthropic_effort(options, facts, omitted, can_disable=can_disable)
    if effort == "none" and can_disable and accepted is not None and "none" not in accepted:
        return _disable_thinking(extra)
    return {}


def _fit_anthropic_effort(
    options: ModelOptions, facts: ModelFacts | None, omitted: dict[str, str], *, can_disable: bool
) -> dict[str, Any]:
    """Return the changes for Anthropic, which knows neither `none` nor `minimal`."""
    extra, known = options.additional_properties or {}, facts.known if facts else {}
    if options.reasoning_effort == "minimal":
        accepted = known.get("effort_messages") or ("low", "medium", "high", "xhigh", "max")
        fix = f"Write one of {', '.join(accepted)}, or none."
        raise RequestError("Anthropic has no reasoning effort 'minimal'", fix)
    if options.reasoning_effort != "none":
        return {}
    if can_disable:
        return _disable_thinking(extra)
    if "thinking" not in extra and known.get("thinks") != "optional":
        model = facts.id if facts else "Anthropic"
        omitted["reasoningEffort"] = f"{model} is not known to answer without thinking"
    return {"reasoning_effort": None}


def _disable_thinking(extra: Mapping[str, Any]) -> dict[str, Any]:
    return {"reasoning_effort": None, "additional_properties": {**extra, "thinking": {"type": "disabled"}}}


def _fit_output_limit(options: ModelOptions, api: Api, facts: ModelFacts | None) -> dict[str, Any]:
    """Return a limit for a model of Anthropic that thinks, whose thoughts count as output."""
    if api.name != "messages" or options.max_output_tokens is not None or facts is None:
        return {}
    if "max_tokens" in (options.additional_properties or {}) or facts.known.get("thinks") not in ("always", "default"):
        return {}
    return {"max_output_tokens": read_package_facts()["choices"]["max_tokens_thinking"]}


def _fit_storage(
    options: ModelOptions, api: Api, facts: ModelFacts | None, changes: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the changes that keep reasoning usable in the next request, although the server stores nothing."""
    if api.name != "responses":
        return {}
    extra: dict[str, Any] = changes.get("additional_properties") or options.additional_properties or {}
    added: dict[str, Any] = {}
    if api.chosen and not any(name in extra for name in _STORED):
        added["store"] = False
    needs_content = {**extra, **added}.get("store") is False and facts is not None and facts.reasons()
    included = extra.get("include") or []
    if needs_content and isinstance(included, list) and _ENCRYPTED not in included:
        added["include"] = [*included, _ENCRYPTED]
    return {"additional_properties": {**extra, **added}} if added else {}


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelRefusal:
    """What a model refuses, or may refuse, in a request.

    `parameter` is its name in the request, such as `reasoning.effort`, or `model`, `tools`, `outputs` or `messages`.
    An error is refused for sure. `replacement` is the value to write instead.
    """

    code: str
    parameter: str
    message: str
    fix: str
    severity: Severity = "error"
    replacement: str | None = None


def find_refusals(
    base: RequestBase, *, offers_tools: bool, last_role: str = "user", today: date | None = None
) -> Iterator[ModelRefusal]:
    """Yield what a model refuses in its requests. `last_role` is the role of the last message."""
    facts = base.api.facts
    if facts is None:
        return
    request = _Request(base, facts, map_options(base.options, base.api.options))
    yield from _find_end(base.model, facts, today or date.today())
    yield from request.find_wrong_api(offers_tools=offers_tools)
    yield from request.find_sampling()
    yield from request.find_effort()
    yield from request.find_thinking()
    yield from request.find_limits()
    yield from request.find_other(last_role)


def _find_end(written: str, facts: ModelFacts, today: date) -> Iterator[ModelRefusal]:
    ends, sure = facts.find("ends")
    if facts.known.get("status") == "invalid-id":
        fix = _suggest_model(facts)
        yield ModelRefusal(
            code="model-ends", parameter="model", message=f"{facts.host} has no model {facts.id}", fix=fix
        )
    if ends is None:
        return
    left = (date.fromisoformat(ends) - today).days
    if left > read_package_facts()["choices"]["warn_days_before_end"]:
        return
    severity: Severity = "error" if left < 0 else "warning"
    message = f"{facts.id} ended on {ends}" if left < 0 else f"{facts.id} ends on {ends}, in {left} days"
    yield ModelRefusal(
        code="model-ends",
        parameter="model",
        message=message,
        fix=_suggest_model(facts),
        severity=severity if sure else "info",
        # A deployment or a fine-tuned model is not replaced by the successor of its base.
        replacement=facts.find("replacement")[0] if written == facts.id and not _is_tuned(facts) else None,
    )


def _suggest_model(facts: ModelFacts) -> str:
    choices = read_package_facts()["choices"]
    own = facts.find("replacement")[0] or choices.get(f"replacement_{facts.id}")
    default = own or choices.get(f"default_model_{facts.host}")
    if default and _is_tuned(facts):
        return f"Tune another model, such as `{default}`."
    return f"Use `{default}`." if default else "Use another model: `prompty models` lists those of the server."


def _is_tuned(facts: ModelFacts) -> bool:
    return facts.id.startswith("ft:")


@dataclass(frozen=True, slots=True)
class _Request:
    """A request to be compared with facts. `parameters` are its options, by their names in the request."""

    base: RequestBase
    facts: ModelFacts
    parameters: Json

    def find_wrong_api(self, *, offers_tools: bool) -> Iterator[ModelRefusal]:
        model, api = self.facts.id, self.base.api.name
        apis, sure = self.facts.find("apis")
        if apis is not None and api not in apis:
            message = f"{model} does not answer on {api}"
            severity: Severity = "error" if {api, *apis} <= {"chat", "responses"} else "warning"
            yield self._refuse("model-refuses", "apiType", message, _use(apis), sure=sure, severity=severity)
        elif offers_tools:
            yield from self._find_refused_tools(api)
        structured, sure = self.facts.find("structured")
        if structured is not None and api not in structured and self.base.output:
            message = f"{model} takes no schema for its answer on {api}"
            yield self._refuse("model-refuses", "outputs", message, _use(structured), sure=sure)

    def _find_refused_tools(self, api: str) -> Iterator[ModelRefusal]:
        model = self.facts.id
        for name in ("tools", *((get_tools_fact(get_effort(self.base.options)),) if api == "chat" else ())):
            fact, sure = self.facts.find(name)
            if fact == "refused":
                use = "Use another model." if name == "tools" else "Write `apiType: responses`."
                yield self._refuse("model-refuses", "tools", f"{model} refuses these tools on {api}", use, sure=sure)
            elif fact == "unknown":
                message = f"it is not known whether {model} takes these tools on {api}"
                yield self._refuse("model-refuses", "tools", message, "If not, write `apiType: responses`.", sure=False)

    def find_sampling(self) -> Iterator[ModelRefusal]:
        effort = get_effort(self.base.options)
        for name, (fact_name, default) in _SAMPLING.items():
            if name not in self.parameters:
                continue
            fact, sure = self.facts.find(fact_name)
            reason = find_sampling_refusal(self.facts, fact, effort)
            if reason and not (fact != "refused" and self.parameters[name] == default):
                yield self._refuse("option-refused", name, reason, "Remove it.", sure=sure)
            elif fact == "unknown" or (fact == "effort-none-only" and is_reasoning(self.facts, effort) is None):
                yield self._doubt(name)
        if {"temperature", "top_p"} <= self.parameters.keys():
            fact, sure = self.facts.find("temperature_with_top_p")
            if fact == "refused":
                message = f"{self.facts.id} refuses it beside `temperature`"
                yield self._refuse("option-refused", "top_p", message, "Write only one of them.", sure=sure)

    def find_effort(self) -> Iterator[ModelRefusal]:
        effort, name = self._find_sent_effort()
        accepted, sure = self.facts.find(f"effort_{self.base.api.name}")
        if effort is None or accepted is None or effort in accepted:
            return
        message = f"{self.facts.id} has no reasoning effort '{effort}'"
        fix = f"Write one of {', '.join(accepted)}." if accepted else "Remove it."
        yield self._refuse("option-refused", name, message, fix, sure=sure)

    def _find_sent_effort(self) -> tuple[str | None, str]:
        name = {"responses": "reasoning.effort", "messages": "output_config.effort"}.get(self.base.api.name)
        if name is None:
            effort = self.parameters.get("reasoning_effort")
            return effort if isinstance(effort, str) else None, "reasoning_effort"
        group = self.parameters.get(name.partition(".")[0])
        effort = group.get("effort") if isinstance(group, dict) else None
        return effort if isinstance(effort, str) else None, name

    def find_thinking(self) -> Iterator[ModelRefusal]:
        thinking = self.parameters.get("thinking")
        kind = thinking.get("type") if isinstance(thinking, dict) else None
        accepted, sure = self.facts.find("thinking_types")
        if kind is None or accepted is None:
            return
        if kind not in accepted:
            message = f"{self.facts.id} refuses `thinking: {{type: {kind}}}`"
            yield self._refuse("option-refused", "thinking", message, f"Use one of {', '.join(accepted)}.", sure=sure)
        highest, sure = self.facts.find("thinking_off_max_effort")
        effort, name = self._find_sent_effort()
        if highest and effort and kind in ("disabled", "between_tools") and _rank(effort) > _rank(highest):
            message = f"{self.facts.id} takes at most the effort '{highest}' without thinking"
            yield self._refuse("option-refused", name, message, f"Write `{highest}`.", sure=sure)

    def find_limits(self) -> Iterator[ModelRefusal]:
        name = self.base.api.options.get("max_output_tokens", "")
        limit, (most, _) = self.parameters.get(name), self.facts.find("max_output")
        if not isinstance(limit, int):
            return
        if most is not None and limit > most:
            message = f"{self.facts.id} answers with at most {most} tokens"
            yield self._refuse("option-refused", name, message, f"Write at most {most}.", severity="warning")
        small = read_package_facts()["choices"]["small_output"]
        if limit < small and self._is_thinking():
            message = f"reasoning counts as output, so {limit} tokens may leave no answer"
            fix = "Raise it, or write `reasoningEffort: none` if the model takes it."
            yield self._refuse("small-output", name, message, fix, severity="warning")

    def _is_thinking(self) -> bool | None:
        thinking = self.parameters.get("thinking")
        if isinstance(thinking, dict) and thinking.get("type") == "disabled":
            return False
        return is_reasoning(self.facts, get_effort(self.base.options))

    def find_other(self, last_role: str) -> Iterator[ModelRefusal]:
        for name in ("stop", "seed"):
            fact, sure = self.facts.find(name)
            if name in self.parameters and fact == "refused":
                message = f"{self.facts.id} refuses it"
                yield self._refuse("option-refused", name, message, "Remove it.", sure=sure, severity="warning")
            elif name in self.parameters and fact == "unknown":
                yield self._doubt(name)
        choice = self.parameters.get("tool_choice")
        if isinstance(choice, dict) and choice.get("type") in ("any", "tool"):
            yield from self._find_forced_choice()
        for parameter, name in (("max_tokens", "max_tokens_on_chat"), ("response_format", "image_response_format")):
            applies = self.base.api.name == ("chat" if parameter == "max_tokens" else "images")
            fact, sure = self.facts.find(name)
            if applies and parameter in self.parameters and fact == "refused":
                yield self._refuse("option-refused", parameter, f"{self.facts.id} refuses it", "Remove it.", sure=sure)
        if last_role == "assistant" and self.base.api.name == "messages":
            fact, sure = self.facts.find("prefill")
            if fact in ("refused", "unknown"):
                message = f"{self.facts.id} refuses a conversation that ends with an assistant message"
                fix = "End it with a user message, and say there how the answer begins."
                yield self._refuse("model-refuses", "messages", message, fix, sure=sure)

    def _find_forced_choice(self) -> Iterator[ModelRefusal]:
        fact, sure = self.facts.find("forced_tool_choice")
        if fact in ("refused", "refused-while-thinking", "unknown"):
            message = f"{self.facts.id} refuses a forced tool"
            sure = sure and fact == "refused"
            yield self._refuse(
                "option-refused", "tool_choice", message, "Write `tool_choice: {type: auto}`.", sure=sure
            )

    def _doubt(self, name: str) -> ModelRefusal:
        message = f"it is not known whether {self.facts.id} takes it"
        return self._refuse("option-refused", name, message, "Remove it if the server refuses it.", sure=False)

    @staticmethod
    def _refuse(
        code: str, parameter: str, message: str, fix: str, *, sure: bool = True, severity: Severity = "error"
    ) -> ModelRefusal:
        return ModelRefusal(
            code=code, parameter=parameter, message=message, fix=fix, severity=severity if sure else "info"
        )


def _use(apis: list[str]) -> str:
    return f"Write `apiType: {apis[0]}`." if apis and apis[0] in ("chat", "responses") else "Use another model."


def _rank(effort: str) -> int:
    return EFFORTS.index(effort) if effort in EFFORTS else -1
