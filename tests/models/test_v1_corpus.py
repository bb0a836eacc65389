"""Public v1 files on current models, by `model=` alone: no refusal, and the options that are not sent."""

import os
import warnings
from pathlib import Path

import pytest

from prompty.errors import PromptyWarning
from prompty.registry import DEFAULT
from tests.servers.rules_over_http import TODAY
from tests.servers.rules_server import RulesServer
from tests.v1.corpus import ROOT, generate_inputs, load_quietly, name_of, set_variables
from tests.ways import Way, sync_and_async

if not ROOT.exists() and not os.environ.get("CI"):
    pytest.skip("the public files are not here", allow_module_level=True)

MODELS = {"openai:gpt-6-luna": "/v1/chat/completions", "anthropic:claude-haiku-5-5": "/v1/messages"}
FOLDERS = ("azure-ai-evaluation", "Azure-Samples_contoso-chat")
EVALUATION, SIMULATOR = "azure-ai-evaluation/azure/ai/evaluation/_evaluators", "azure-ai-evaluation/azure/ai/evaluation"
CONTOSO = "Azure-Samples_contoso-chat"
TEMPERATURE = ("temperature",)
# The options of each file that both models refuse, so that they are not sent.
OMITTED: dict[str, tuple[str, ...]] = {
    f"{EVALUATION}/_coherence/coherence.prompty": TEMPERATURE,
    f"{EVALUATION}/_fluency/fluency.prompty": TEMPERATURE,
    f"{EVALUATION}/_groundedness/groundedness_with_query.prompty": TEMPERATURE,
    f"{EVALUATION}/_groundedness/groundedness_without_query.prompty": TEMPERATURE,
    f"{EVALUATION}/_intent_resolution/intent_resolution.prompty": TEMPERATURE,
    f"{EVALUATION}/_relevance/relevance.prompty": TEMPERATURE,
    f"{EVALUATION}/_response_completeness/response_completeness.prompty": TEMPERATURE,
    f"{EVALUATION}/_retrieval/retrieval.prompty": TEMPERATURE,
    f"{EVALUATION}/_similarity/similarity.prompty": TEMPERATURE,
    f"{EVALUATION}/_task_adherence/task_adherence.prompty": (),
    f"{EVALUATION}/_task_completion/task_completion.prompty": TEMPERATURE,
    f"{EVALUATION}/_tool_call_accuracy/tool_call_accuracy.prompty": TEMPERATURE,
    f"{EVALUATION}/_tool_call_success/tool_call_success.prompty": TEMPERATURE,
    f"{EVALUATION}/_tool_input_accuracy/tool_input_accuracy.prompty": TEMPERATURE,
    f"{EVALUATION}/_tool_output_utilization/tool_output_utilization.prompty": TEMPERATURE,
    f"{EVALUATION}/_tool_selection/tool_selection.prompty": TEMPERATURE,
    f"{SIMULATOR}/simulator/_prompty/task_query_response.prompty": TEMPERATURE,
    f"{SIMULATOR}/simulator/_prompty/task_simulate.prompty": TEMPERATURE,
    f"{CONTOSO}/docs/workshop/src/1-build/basic-0.prompty": (),
    f"{CONTOSO}/docs/workshop/src/1-build/basic.prompty": (),
    f"{CONTOSO}/docs/workshop/src/1-build/chat-0.prompty": (),
    f"{CONTOSO}/docs/workshop/src/1-build/chat-1.prompty": TEMPERATURE,
    f"{CONTOSO}/docs/workshop/src/1-build/chat-2.prompty": TEMPERATURE,
    f"{CONTOSO}/docs/workshop/src/1-build/chat-3.prompty": TEMPERATURE,
    f"{CONTOSO}/docs/workshop/src/1-build/chat-exact.prompty": TEMPERATURE,
    f"{CONTOSO}/docs/workshop/src/2-evaluate/friendliness.prompty": TEMPERATURE,
    f"{CONTOSO}/src/api/contoso_chat/chat.prompty": TEMPERATURE,
    f"{CONTOSO}/src/api/contoso_chat/product/product.prompty": (),
    f"{CONTOSO}/src/api/evaluators/custom_evals/coherence.prompty": TEMPERATURE,
    f"{CONTOSO}/src/api/evaluators/custom_evals/fluency.prompty": TEMPERATURE,
    f"{CONTOSO}/src/api/evaluators/custom_evals/groundedness.prompty": TEMPERATURE,
    f"{CONTOSO}/src/api/evaluators/custom_evals/relevance.prompty": TEMPERATURE,
}
# Files that are a system message alone. Anthropic's API, whatever the model, answers only to a user's message.
INSTRUCTIONS_ALONE = {
    f"{EVALUATION}/_tool_input_accuracy/tool_input_accuracy.prompty",
    f"{SIMULATOR}/simulator/_prompty/task_query_response.prompty",
    f"{SIMULATOR}/simulator/_prompty/task_simulate.prompty",
    f"{CONTOSO}/docs/workshop/src/1-build/chat-0.prompty",
    f"{CONTOSO}/docs/workshop/src/1-build/chat-1.prompty",
    f"{CONTOSO}/docs/workshop/src/1-build/chat-2.prompty",
    f"{CONTOSO}/docs/workshop/src/1-build/chat-3.prompty",
    f"{CONTOSO}/docs/workshop/src/1-build/chat-exact.prompty",
    f"{CONTOSO}/docs/workshop/src/2-evaluate/friendliness.prompty",
    f"{CONTOSO}/src/api/contoso_chat/chat.prompty",
}


@pytest.fixture(autouse=True)
def nobody_was_warned(monkeypatch: pytest.MonkeyPatch) -> None:
    set_variables(monkeypatch)
    monkeypatch.setattr(DEFAULT, "warned", set())


def run(name: str, model: str, way: Way, **inputs: object) -> tuple[RulesServer, object, list[str]]:
    """Run a file, and return the server, the error, and the options that a warning says are not sent."""
    agent = load_quietly(ROOT / name)
    with RulesServer(today=TODAY) as server, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        seen = way.invoke(agent, {**generate_inputs(agent), **inputs}, model=model)
    assert all(warning.category is PromptyWarning for warning in caught)
    said = [str(warning.message) for warning in caught]
    assert all("` is not sent: " in text and str(ROOT / name) in text for text in said)
    return server, seen.error, [text.split("`")[1] for text in said]


def test_the_table_has_every_file() -> None:
    found = [name_of(file) for folder in FOLDERS for file in sorted((ROOT / folder).rglob("*.prompty"))]
    assert sorted(OMITTED) == sorted(found)
    assert sum(name.startswith(SIMULATOR) for name in OMITTED) == 18


@sync_and_async
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("name", OMITTED, ids=lambda name: Path(name).stem)
def test_a_public_file_runs_on_a_current_model_without_a_refusal(name: str, model: str, way: Way) -> None:
    server, error, omitted = run(name, model, way)
    assert server.refusals == []
    assert tuple(omitted) == OMITTED[name]
    assert error is None
    (request,) = server.requests
    if model.startswith("anthropic"):
        assert ("system" in request.body) == (name not in INSTRUCTIONS_ALONE)
    assert request.path == MODELS[model]
    assert not set(OMITTED[name]) & request.body.keys()
    assert request.headers.get("anthropic-version") == ("2026-10-21" if "claude" in model else None)


@sync_and_async
def test_a_chat_that_is_a_system_message_runs_on_claude_after_a_question(way: Way) -> None:
    name = f"{CONTOSO}/src/api/contoso_chat/chat.prompty"
    asked = [{"role": "user", "content": "Which tent is light?"}]
    server, error, omitted = run(name, "anthropic:claude-haiku-5-5", way, history=asked)
    assert (error, server.refusals, omitted) == (None, [], ["temperature"])
    assert [message["role"] for message in server.requests[0].body["messages"]] == ["user"]
