"""Options as a model takes them: only refused sampling options are left out, and everything else crosses unchanged."""

import pytest
from hypothesis import given, strategies as st

from prompty import PromptAgent, invoke, loads
from prompty.errors import RequestError
from prompty.model.agent import ModelOptions
from prompty.providers import PROVIDERS, RequestBase
from prompty.providers.fitting import find_refusals, fit_request
from prompty.registry import DEFAULT
from prompty.testing import Script
from scripts.write_model_facts import load as load_facts

SAMPLING = ("temperature", "top_p", "top_k", "frequency_penalty", "presence_penalty")
KEPT = ("seed", "stop_sequences", "allow_multiple_tool_calls")
EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
MODELS = [(row["host"], row["examples"][0]) for row in load_facts()["models"] if row["host"] in ("openai", "anthropic")]

numbers = st.sampled_from([None, 0, 0.2, 1, 2])
extras = st.dictionaries(
    st.sampled_from(["store", "include", "reasoning", "reasoning_effort", "thinking", "temperature", "top_p", "own"]),
    st.sampled_from([True, False, {"effort": "low"}, {"type": "adaptive"}, [], ["own"], 0.5, "low", None]),
    max_size=4,
)
all_options = st.builds(
    ModelOptions,
    temperature=numbers,
    top_p=numbers,
    top_k=st.sampled_from([None, 5]),
    frequency_penalty=numbers,
    presence_penalty=numbers,
    seed=st.sampled_from([None, 7]),
    stop_sequences=st.sampled_from([None, ("end",)]),
    max_output_tokens=st.sampled_from([None, 10, 500_000]),
    reasoning_effort=st.sampled_from([None, *EFFORTS]),
    additional_properties=st.none() | extras,
)


def agent_with(host: str, id: str, options: ModelOptions, api_type: str | None) -> PromptAgent:
    model = {"id": id, "provider": host, **({"apiType": api_type} if api_type else {})}
    agent = PromptAgent.model_validate({"model": model})
    return agent.model_copy(update={"model": agent.model.model_copy(update={"options": options})})


def fit(host: str, id: str, options: ModelOptions, api_type: str | None, *, tools: bool) -> RequestBase:
    agent = agent_with(host, id, options, api_type)
    api = DEFAULT[PROVIDERS].get(host).api_for(agent, offers_tools=tools)
    return fit_request(agent, api)


@given(st.sampled_from(MODELS), all_options, st.sampled_from([None, "chat", "responses"]), st.booleans())
def test_only_sampling_options_are_left_out_and_nothing_silently(
    model: tuple[str, str], options: ModelOptions, api_type: str | None, tools: bool
) -> None:
    host, id = model
    if host == "anthropic":
        api_type = None
        if options.reasoning_effort == "minimal":
            options = options.model_copy(update={"reasoning_effort": "low"})
    fitted = fit(host, id, options, api_type, tools=tools)
    after = fitted.options
    for name in SAMPLING:
        before, now = getattr(options, name), getattr(after, name)
        alias = ModelOptions.model_fields[name].alias or name
        is_default = before == (0 if "penalty" in name else 1)
        assert now == before or (now is None and (alias in fitted.omitted or is_default))
    for name in KEPT:
        assert getattr(after, name) == getattr(options, name)
    written = options.additional_properties or {}
    sent = after.additional_properties or {}
    assert {name: sent[name] for name in written if name != "include"} == {
        name: value for name, value in written.items() if name != "include"
    }
    assert sent.keys() - written.keys() <= {"store", "include", "thinking"}
    assert fit_request(agent_with(host, id, after, api_type), fitted.api).options == after
    list(find_refusals(fitted, offers_tools=tools))


@given(st.sampled_from(MODELS), all_options)
def test_a_model_without_a_row_gets_what_the_file_says(model: tuple[str, str], options: ModelOptions) -> None:
    options = options.model_copy(update={"reasoning_effort": None})
    fitted = fit(model[0], "house-model", options, None, tools=True)
    assert (fitted.options, dict(fitted.omitted)) == (options, {})


def sent(model: str, rest: str = "") -> dict[str, object]:
    """Return the body that is sent."""
    with Script("ok") as script:
        invoke(loads(f"---\nmodel: {model}\n{rest}\n---\nuser:\nHi"), outputs_mode="lenient")
    return script.requests[0]


OPENAI = "{{id: house-model, apiType: {api}, options: {{reasoningEffort: low, {extra}}}}}"


@pytest.mark.parametrize(
    ("api", "extra", "part"),
    [
        ("chat", "", {"reasoning_effort": "low"}),
        ("responses", "", {"reasoning": {"effort": "low"}}),
        (
            "responses",
            "additionalProperties: {reasoning: {summary: auto}}",
            {"reasoning": {"summary": "auto", "effort": "low"}},
        ),
        ("chat", "additionalProperties: {reasoning_effort: high}", {"reasoning_effort": "high"}),
        ("responses", "additionalProperties: {reasoning: {effort: high}}", {"reasoning": {"effort": "high"}}),
    ],
)
def test_the_effort_is_sent_under_the_name_of_the_api(api: str, extra: str, part: dict[str, object]) -> None:
    assert sent(OPENAI.format(api=api, extra=extra)).items() >= part.items()


@pytest.mark.parametrize(
    ("id", "effort", "part", "absent"),
    [
        ("house-claude", "low", {"output_config": {"effort": "low"}}, "thinking"),
        ("claude-haiku-5-5", "none", {"thinking": {"type": "disabled"}}, "output_config"),
        ("claude-opus-4-8", "none", {}, "output_config"),
        ("claude-sonnet-4-5", "none", {}, "thinking"),
    ],
)
def test_the_effort_of_anthropic(id: str, effort: str, part: dict[str, object], absent: str) -> None:
    body = sent(f"{{id: {id}, provider: anthropic, options: {{reasoningEffort: {effort}}}}}")
    assert body.items() >= part.items()
    assert absent not in body


def test_the_effort_of_anthropic_stands_beside_the_schema_of_the_answer() -> None:
    body = sent(
        "{id: house-claude, provider: anthropic, options: {reasoningEffort: low}}", "outputs: {x: {kind: string}}"
    )
    assert body["output_config"]["effort"] == "low"  # type: ignore[index]  # a mapping
    assert body["output_config"]["format"]["type"] == "json_schema"  # type: ignore[index]  # a mapping


@pytest.mark.parametrize("id", ["claude-opus-5-5", "house-claude"])
def test_a_model_that_cannot_stop_thinking_is_named_in_a_warning(id: str) -> None:
    with pytest.warns(UserWarning, match="is not known to answer without thinking"):
        body = sent(f"{{id: {id}, provider: anthropic, options: {{reasoningEffort: none}}}}", f"name: {id}-thinks")
    assert not {"thinking", "output_config"} & set(body)


@pytest.mark.parametrize("id", ["gpt-4o", "gpt-4.1-mini"])
def test_effort_none_is_not_sent_to_a_model_that_does_not_reason(id: str) -> None:
    assert "reasoning_effort" not in sent(f"{{id: {id}, options: {{reasoningEffort: none}}}}")


def test_an_unknown_effort_is_a_mistake_of_the_file() -> None:
    with pytest.raises(ValueError, match="reasoningEffort"):
        loads("---\nmodel: {id: x, options: {reasoningEffort: loud}}\n---\nHi")


def test_effort_survives_another_model() -> None:
    agent = loads("---\nmodel: {id: house-model, options: {reasoningEffort: low}}\n---\nuser:\nHi")
    with Script("ok") as script:
        invoke(agent, model="anthropic:house-claude")
    assert script.requests[0]["output_config"] == {"effort": "low"}


@pytest.mark.parametrize("name", ["store", "background", "conversation", "previous_response_id"])
def test_who_keeps_state_at_the_server_decides_about_storing(name: str) -> None:
    value = {"store": "true", "background": "true", "conversation": "conv_1", "previous_response_id": "resp_1"}[name]
    tool = "tools:\n- {name: look, kind: function, parameters: {}}"
    body = sent(f"{{id: gpt-6-luna, options: {{additionalProperties: {{{name}: {value}}}}}}}", tool)
    assert "include" not in body
    assert ("store" in body) == (name == "store")


def test_minimal_is_an_error_at_anthropic() -> None:
    with pytest.raises(RequestError, match="minimal"):
        fit("anthropic", "claude-opus-5-5", ModelOptions(reasoning_effort="minimal"), None, tools=False)
