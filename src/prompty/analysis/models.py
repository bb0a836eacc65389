"""Find what a prompt's model refuses, and when it ends, from the facts about models."""

from collections.abc import Iterator
from datetime import date

from prompty.errors import PromptyError, Severity
from prompty.model.agent import ModelOptions, PromptAgent
from prompty.model.marker import read_marker
from prompty.pipeline.source_map import Finding, KeyPath, SourceMap
from prompty.providers import PROVIDERS, Api, Provider
from prompty.providers.facts import ACTS_AS, check_own_facts
from prompty.providers.fitting import find_refusals, fit_request

STORED = "OpenAI keeps the answers of the Responses API for 30 days"


def find_model_problems(agent: PromptAgent, source_map: SourceMap, today: date | None = None) -> Iterator[Finding]:
    """Yield findings for a model that ends, for parts of the prompt that it refuses, and for the API that it needs."""
    check_own_facts()
    providers = agent.registry[PROVIDERS]
    if not agent.model.id or not providers.has(agent.model.provider):
        return
    try:
        provider = providers.get(agent.model.provider)
        api = provider.api_for(agent)
        base = fit_request(agent, api)
    except PromptyError as error:  # other findings say so, but for an effort that the provider does not have
        if agent.model.options.reasoning_effort and "effort" in str(error):
            yield source_map.locate(_find_option(agent, api, "reasoning_effort"), "option-refused", *_split(error))
        return
    yield from _check_acts_as(agent, provider, source_map)
    for option, reason in base.omitted.items():
        keys: KeyPath = ("model", "options", option)
        yield source_map.locate(
            keys, "option-refused", f"it is not sent: {reason}", _advise(reason), severity="warning", on_key=True
        )
    last_role = _find_last_role(agent.instructions)
    offers_tools = bool(agent.tools)
    for refusal in find_refusals(base, offers_tools=offers_tools, last_role=last_role, today=today):
        yield source_map.locate(
            _find_keys(agent, api, refusal.parameter),
            refusal.code,
            refusal.message,
            refusal.fix,
            severity=refusal.severity,
            replacement=refusal.replacement,
        )
    yield from _explain_api(agent, api, provider, source_map)


def _find_last_role(body: str) -> str:
    """Return the role of the last message that a body writes. One without text is not sent."""
    text = ""
    for line in reversed(body.splitlines()):
        if (marker := read_marker(line)) and text.strip():
            return marker.role
        text = "" if marker else line + text
    return "system"


def _advise(reason: str) -> str:
    return "Write it, or remove this option." if "reasoningEffort: none" in reason else "Remove it."


def _split(error: PromptyError) -> tuple[str, str]:
    cause, _, fix = str(error).partition("\n    ")
    return cause, fix


def _check_acts_as(agent: PromptAgent, provider: Provider, source_map: SourceMap) -> Iterator[Finding]:
    named = agent.metadata.get(ACTS_AS)
    if named is None:
        return
    host, colon, id = str(named).partition(":")
    keys: KeyPath = ("metadata", ACTS_AS)
    if not colon or not id:
        yield source_map.locate(
            keys, "acts-as", f"`{named}` names no host and model", "Write it like azure:gpt-6-luna."
        )
    elif provider.profile(agent).name == "azure" and host != "azure":
        message = "an Azure deployment follows the rules of Azure, not those of another host"
        yield source_map.locate(keys, "acts-as", message, f"Write azure:{id}.", replacement=f"azure:{id}")


def _explain_api(agent: PromptAgent, api: Api, provider: Provider, source_map: SourceMap) -> Iterator[Finding]:
    info: Severity = "info"
    if api.chosen:
        message, fix = f"requests go to the Responses API: {api.chosen}", "To choose it yourself, write `apiType:`."
        yield source_map.locate(("model", "id"), "api-chosen", message, fix, severity=info)
    elif keeps_answers(agent, api, provider):
        fix = "To prevent it, write `additionalProperties: {store: false}` under `options`."
        yield source_map.locate(("model", "apiType"), "answers-stored", STORED, fix, severity=info)


def keeps_answers(agent: PromptAgent, api: Api, provider: Provider) -> bool:
    """Return True if OpenAI keeps the answers by default: the file does not set `store`."""
    extra = agent.model.options.additional_properties or {}
    return api.name == "responses" and provider.profile(agent).name == "openai" and "store" not in extra


def _find_keys(agent: PromptAgent, api: Api, parameter: str) -> KeyPath:
    """Return the place in the file that a parameter of the request comes from."""
    match parameter:
        case "model":
            return ("model", "id")
        case "messages":
            return ("model", "id")
        case "tools" | "outputs":
            return (parameter,)
        case "apiType":
            return ("model", "apiType")
    by_parameter = {wire: name for name, wire in api.options.items()}
    return _find_option(agent, api, by_parameter.get(parameter, parameter))


def _find_option(agent: PromptAgent, api: Api, name: str) -> KeyPath:
    options = agent.model.options
    if name in ModelOptions.model_fields and getattr(options, name) is not None:
        return ("model", "options", ModelOptions.model_fields[name].alias or name)
    wire = api.options.get(name, name)
    return ("model", "options", "additionalProperties", *wire.split("."))
