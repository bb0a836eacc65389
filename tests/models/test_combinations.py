"""Ten combinations of a prompt and a current model that providers refuse: what `check` says, what `explain` shows, what
is sent, and what the server answers.
"""

import warnings
from typing import Any, NamedTuple

import pytest

from prompty import invoke, loads
from prompty.analysis.check import check_text
from prompty.analysis.explain import explain
from prompty.errors import ModelError, PromptyWarning, RequestError
from scripts.write_model_facts import load as load_facts
from tests.servers.rules_server import RulesServer

TOOL = "tools:\n- {name: look, kind: function, parameters: {at: string}}"
TODAY = load_facts()["checked"]


class Combination(NamedTuple):
    """A prompt, and what happens to it. `findings` are severity, code and key; `sent` and `absent` are parts of the
    request, by path; `refused` is a part of the server's refusal, and `fix` of what we add to it."""

    model: str
    rest: str = ""
    body: str = "user:\nHi"
    findings: tuple[tuple[str, str, str], ...] = ()
    path: str = "/v1/chat/completions"
    sent: dict[str, object] = {}  # noqa: RUF012  never changed
    absent: tuple[str, ...] = ()
    refused: str = ""
    fix: str = ""
    warned: str = ""


COMBINATIONS = {
    "1 tools, apiType unset": Combination(
        "{id: gpt-5.6-terra}",
        TOOL,
        findings=(("info", "api-chosen", "model.id"),),
        path="/v1/responses",
        sent={"store": False, "include": ["reasoning.encrypted_content"]},
    ),
    "1 tools, apiType chat": Combination(
        "{id: gpt-5.6-terra, apiType: chat}",
        TOOL,
        findings=(("error", "model-refuses", "tools"),),
        refused="use /v1/responses or set reasoning_effort to 'none'",
        fix="Write `apiType: responses`.",
    ),
    "1 tools, never on chat": Combination(
        "{id: gpt-6-astra, options: {reasoningEffort: low}}",
        TOOL,
        findings=(("info", "api-chosen", "model.id"),),
        path="/v1/responses",
        sent={"reasoning": {"effort": "low"}},
    ),
    "2 temperature": Combination(
        "{id: gpt-6-luna, options: {temperature: 0.2}}",
        findings=(("warning", "option-refused", "model.options.temperature"),),
        absent=("temperature",),
        warned="`temperature` is not sent: gpt-6-luna takes it only with `reasoningEffort: none`",
    ),
    "2 temperature with effort none": Combination(
        "{id: gpt-6-luna, options: {temperature: 0.2, reasoningEffort: none}}",
        sent={"temperature": 0.2, "reasoning_effort": "none"},
    ),
    "2 temperature on Responses": Combination(
        "{id: gpt-6-luna, apiType: responses, options: {temperature: 0.2}}",
        findings=(
            ("info", "answers-stored", "model.apiType"),
            ("warning", "option-refused", "model.options.temperature"),
        ),
        path="/v1/responses",
        absent=("temperature", "store"),
        warned="`temperature` is not sent",
    ),
    "2 the default temperature": Combination("{id: gpt-6-luna, options: {temperature: 1}}", absent=("temperature",)),
    "3 a model that ended": Combination(
        "{id: gpt-4}",
        findings=(("error", "model-ends", "model.id"),),
        refused="does not exist",
        fix="Use `gpt-5.6-sol`.",
    ),
    "3 a model that ends soon": Combination("{id: gpt-5-mini}", findings=(("warning", "model-ends", "model.id"),)),
    "4 effort with tools, apiType chat": Combination(
        "{id: gpt-5.4, apiType: chat, options: {additionalProperties: {reasoning_effort: low}}}",
        TOOL,
        findings=(("error", "model-refuses", "tools"),),
        sent={"reasoning_effort": "low"},
        refused="Please use /v1/responses instead",
        fix="Write `apiType: responses`.",
    ),
    "4 tools without effort": Combination("{id: gpt-5.4}", TOOL),
    "5 temperature on Claude": Combination(
        "{id: claude-opus-5-5, provider: anthropic, options: {temperature: 0.2}}",
        findings=(("warning", "option-refused", "model.options.temperature"),),
        path="/v1/messages",
        sent={"max_tokens": 16000},
        absent=("temperature",),
        warned="claude-opus-5-5 refuses it",
    ),
    "6 temperature and topP": Combination(
        "{id: claude-opus-4-6, provider: anthropic, options: {temperature: 0.2, topP: 0.9}}",
        findings=(("error", "option-refused", "model.options.topP"),),
        path="/v1/messages",
        sent={"temperature": 0.2, "top_p": 0.9, "max_tokens": 4096},
        refused="cannot both be specified",
        fix="Write only one of them.",
    ),
    "7 prefill": Combination(
        "{id: claude-opus-5-5, provider: anthropic}",
        body="user:\nHi\n\nassistant:\nSure",
        findings=(("error", "model-refuses", "model.id"),),
        path="/v1/messages",
        refused="does not support assistant message prefill",
        fix="End it with a user message",
    ),
    "8 a forced tool": Combination(
        "{id: claude-opus-5-5, provider: anthropic, options: {additionalProperties: {tool_choice: {type: any}}}}",
        TOOL,
        findings=(("error", "option-refused", "model.options.additionalProperties.tool_choice"),),
        path="/v1/messages",
        sent={"tool_choice": {"type": "any"}},
        refused='type "tool" and "any" are not supported',
        fix="Write `tool_choice: {type: auto}`.",
    ),
    "8 thinking off": Combination(
        "{id: claude-opus-5-5, provider: anthropic, options: {additionalProperties: {thinking: {type: disabled}}}}",
        findings=(("error", "option-refused", "model.options.additionalProperties.thinking"),),
        path="/v1/messages",
        sent={"thinking": {"type": "disabled"}},
        refused="thinking.type.disabled",
        fix="Use one of adaptive.",
    ),
    "9 an effort that it does not have": Combination(
        "{id: gpt-6-astra, options: {reasoningEffort: none}}",
        findings=(("error", "option-refused", "model.options.reasoningEffort"),),
        sent={"reasoning_effort": "none"},
        refused="does not support 'none'",
        fix="Write one of low, medium, high, xhigh.",
    ),
    "10 stop": Combination(
        "{id: gpt-6-astra, options: {stopSequences: [end]}}",
        findings=(("warning", "option-refused", "model.options.stopSequences"),),
        sent={"stop": ["end"]},
        refused="'stop' is not supported",
        fix="stop: gpt-6-astra refuses it",
    ),
}


@pytest.mark.parametrize("case", COMBINATIONS.values(), ids=COMBINATIONS)
def test_a_combination(case: Combination, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.setenv(name, "sk-test")
    text = f"---\nmodel: {case.model}\n{case.rest}\n---\n{case.body}\n"
    problems = check_text(text)
    assert tuple((problem.severity, problem.code, problem.key) for problem in problems) == case.findings
    agent = loads(text).model_copy(update={"name": str(hash(text))})  # one warning for each agent
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", PromptyWarning)
        explained = explain(agent)
        with RulesServer(today=TODAY) as server:
            refusal = call(agent)
    received = server.requests[-1]
    assert explained.url.endswith(case.path)
    assert received.path == case.path
    assert received.body == explained.body
    assert received.body.items() >= case.sent.items()
    assert not set(case.absent) & set(received.body)
    assert all(name in explained.dropped for name in case.absent if case.warned and name != "store")
    assert case.refused in refusal
    assert bool(refusal) == bool(case.refused)
    assert case.fix in refusal
    assert [case.warned in str(warning.message) for warning in caught] == [True] * bool(case.warned)


def call(agent: Any) -> str:
    """Return the text of the refusal, or an empty one."""
    try:
        invoke(agent)
    except ModelError as error:
        return str(error)
    return ""


def test_effort_minimal_is_refused_before_a_call_to_anthropic() -> None:
    model = "{id: claude-haiku-5-5, provider: anthropic, options: {reasoningEffort: minimal}}"
    text = f"---\nmodel: {model}\n---\nuser:\nHi"
    with pytest.raises(RequestError, match="low, medium, high, xhigh, max"):
        explain(loads(text))
    [problem] = check_text(text)
    assert (problem.code, problem.key) == ("option-refused", "model.options.reasoningEffort")
