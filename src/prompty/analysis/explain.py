"""Build the request that a prompt would send, without sending it."""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from prompty.analysis.models import STORED, keeps_answers
from prompty.concurrency import run_in_event_loop
from prompty.errors import RequestError
from prompty.model.agent import PromptAgent, create_redactor
from prompty.model.conditions import describe_policy
from prompty.model.message import Json, Message, user
from prompty.model.request import Function
from prompty.model.tool import FunctionTool
from prompty.pipeline.caching import BEFORE_TEXT, build_cached_request, choose_cache_use, find_static_texts
from prompty.pipeline.prepare import prepare
from prompty.pipeline.request import build_curl, build_headers, has_kinds, list_declared_functions
from prompty.providers import PROVIDERS, Api, Provider
from prompty.providers.credentials import check_trust
from prompty.providers.fitting import fit_request
from prompty.safety.redaction import mask_secrets, mask_url
from prompty.tokens import estimate_tokens
from prompty.tools.kinds import find_unasked, name_bound_variables, project_tools
from prompty.tools.toolbox import describe_custom_tools
from prompty.wire.request import list_dropped_options


class OfferedFunction(NamedTuple):
    """A function, its tool in the file, its approval policy, and the parameters that the host fills in, with the
    environment variables in their values."""

    name: str
    source: str
    approval: str
    bound: dict[str, list[str]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Explanation:
    """A request, the prompt's messages, and the functions that the model can call. It has no secrets: credentials are
    names of variables.

    `refused` is the reason why a call would not send it, and how to allow it. `chosen` is the reason for the API, if
    the file names none, and `stored` says what the server keeps. `not_asked` are tools whose functions only a server
    knows, which was not asked.
    """

    provider: str
    api_type: str
    messages: list[Message]
    url: str
    headers: tuple[str, ...]
    body: Json
    dropped: dict[str, str]
    functions: tuple[OfferedFunction, ...]
    curl: str
    refused: str | None = None
    chosen: str | None = None
    stored: str | None = None
    not_asked: tuple[str, ...] = ()


def explain(
    agent: PromptAgent,
    inputs: Mapping[str, object] | None = None,
    *,
    stream: bool = False,
    connect: bool = False,
) -> Explanation:
    """Return the messages, the exact request body, the omitted options with reasons, and a curl command.

    With `connect`, the servers of tools are asked for their functions. Without it, nothing connects.
    """
    with create_redactor(agent).inside():
        return _explain(agent, inputs, stream=stream, connect=connect)


def _explain(agent: PromptAgent, inputs: Mapping[str, object] | None, *, stream: bool, connect: bool) -> Explanation:
    provider = agent.registry[PROVIDERS].get(agent.model.provider)
    api = provider.api_for(agent)
    messages = prepare(agent, inputs)
    use = choose_cache_use(agent, is_continued=bool(agent.tools))
    functions = list_declared_functions(agent)
    offered = [_describe_function(agent, function) for function in functions]
    taken = [function.name for function in describe_custom_tools(agent)]
    not_asked = () if connect else find_unasked(agent, taken)
    if has_kinds(agent):
        functions, offered = run_in_event_loop(_list_all(agent, not_asked))
    request = build_cached_request(
        agent,
        messages,
        fit_request(agent, api),
        use=use,
        functions=functions,
        stream=stream and api.decoder is not None,
    )
    preview = provider.preview(agent, api)
    headers = build_headers(preview, request)
    body = json.loads(mask_secrets(json.dumps(request.body, ensure_ascii=False)))
    return Explanation(
        provider=agent.model.provider,
        api_type="responses" if api.chosen else agent.model.api_type,
        messages=messages,
        url=mask_url(preview.url),
        headers=headers,
        body=body,
        dropped={**_find_dropped(agent, api, request.body), **request.omitted},
        functions=tuple(offered),
        curl=build_curl(mask_url(preview.url), headers, body),
        refused=_find_refusal(agent, provider),
        chosen=api.chosen,
        stored=STORED if not api.chosen and keeps_answers(agent, api, provider) else None,
        not_asked=not_asked,
    )


async def _list_all(agent: PromptAgent, not_asked: Collection[str]) -> tuple[list[Function], list[OfferedFunction]]:
    """Return the functions of all other tools, of every kind, and what a person wants to know of them."""
    functions = [*list_declared_functions(agent), *describe_custom_tools(agent)]
    offered = [_describe_function(agent, function) for function in functions]
    for projected in await project_tools(agent, [function.name for function in functions], without=not_asked):
        tool, policies = projected.tool, (projected.tool.approval_mode, projected.kind_tool.approval)
        functions.append(projected.function)
        approval = " and ".join(sorted({describe_policy(policy) for policy in policies}))
        named = name_bound_variables(agent, tool)
        bound = {name: named[name] for name in sorted(projected.bindings)}
        offered.append(OfferedFunction(projected.function.name, f"{tool.kind} {tool.name}", approval, bound))
    return functions, offered


def _describe_function(agent: PromptAgent, function: Function) -> OfferedFunction:
    tool = next(tool for tool in agent.tools if tool.name == function.name)
    source = "function" if isinstance(tool, FunctionTool) else f"{tool.kind} {tool.name}"
    bound = name_bound_variables(agent, tool)
    return OfferedFunction(function.name, source, describe_policy(tool.approval_mode), bound)


@dataclass(frozen=True, kw_only=True, slots=True)
class CacheExplanation:
    """What a provider can cache of every request: the schema, the tools, and the `texts` before the first tag.

    `tokens` are an estimate. `minimum` is the least number that the model caches, if it is known.
    """

    texts: tuple[str, ...]
    tokens: int
    minimum: int | None

    @property
    def is_cached(self) -> bool:
        return self.minimum is not None and self.tokens >= self.minimum


def explain_cache(agent: PromptAgent) -> CacheExplanation:
    """Return what a provider can cache of a prompt's requests. Tools that a server describes are not counted."""
    api = agent.registry[PROVIDERS].get(agent.model.provider).api_for(agent)
    body = api.request(fit_request(agent, api), [user("?")], list_declared_functions(agent))
    texts = find_static_texts(agent)
    before = [json.dumps(body[name], ensure_ascii=False) for name in BEFORE_TEXT if body.get(name)]
    minimum = api.facts.find("cache_min")[0] if api.facts else None
    return CacheExplanation(texts=texts, tokens=estimate_tokens("\n".join([*before, *texts])), minimum=minimum)


def _find_refusal(agent: PromptAgent, provider: Provider) -> str | None:
    try:
        check_trust(agent, provider.hosts)
    except RequestError as error:
        return str(error)
    return None


def _find_dropped(agent: PromptAgent, api: Api, body: Json) -> dict[str, str]:
    reason = f"`apiType: {agent.model.api_type}` of {agent.model.provider} has no such option"
    dropped = dict.fromkeys(list_dropped_options(agent.model.options, api.options), reason)
    if agent.model.options.allow_multiple_tool_calls is not None and "tools" not in body:
        dropped["allowMultipleToolCalls"] = "the prompt offers no tools"
    return dropped
