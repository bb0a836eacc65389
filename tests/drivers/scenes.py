"""Scenes that every driver plays, one for each thing that a caller can ask for."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pydantic import BaseModel

import prompty
from prompty import pipeline
from prompty.memory import InProcessMemory
from prompty.messages import TextPart, repair
from prompty.model.message import Reply
from prompty.providers import register_executor, register_processor
from prompty.testing import Fault, Player, Recorder, answer, call
from prompty.tools import Function, KindTool, register_tool, register_tool_kind
from prompty.tracing import Tracer
from tests.drivers.play import WAYS, WHOLE, Play, scene
from tests.loopback import CLOSE, Pause, Server, event, json_reply, stream


class Person(BaseModel):
    name: str
    age: int


PERSON = {"name": {"kind": "string", "required": True}, "age": {"kind": "integer", "required": True}}
ADA = '{"name": "Ada", "age": 36}'
HISTORY = ["first " * 20, "yes " * 50, "and now?"]


def agent(**parts: Any) -> Any:
    model = {"id": "m", "provider": "scripted", **parts.pop("model", {})}
    body = {"instructions": "system:\nBe brief.\nuser:\n{{q}}", "inputs": {"q": "Hi"}}
    return prompty.PromptAgent.model_validate({"model": model, **body, **parts})


def tool_named(name: str, **parts: Any) -> dict[str, Any]:
    return {"name": name, "kind": "function", "parameters": [{"name": "at", "kind": "string"}], **parts}


def look(at: str) -> str:
    """Look at something."""
    return f"seen {at}"


async def pay(amount: int) -> str:
    """Pay an amount."""
    return f"paid {amount}"


def fail(at: str) -> str:
    """Fail."""
    raise ValueError(f"there is no {at}")


def busy(status: int = 429) -> Any:
    return Fault(prompty.ModelError("busy", status=status, retryable=True, retry_after=0.001))


def looks(*places: str) -> list[Any]:
    return [call("look", at=place) for place in places]


def history() -> list[Any]:
    return [prompty.user(HISTORY[0]), prompty.assistant(HISTORY[1]), prompty.user(HISTORY[2])]


# One call of a model.


@scene()
def invoke_text(play: Play) -> None:
    with play.script("Hello there."):
        play.call("invoke", agent(), {"q": "How are you?"})


@scene()
def invoke_other_wires(play: Play) -> None:
    with play.script(*[answer("Hello there.", reasoning="They are friendly.")] * 3):
        for api_type in ("chat", "responses", "messages"):
            play.call("invoke", agent(model={"apiType": api_type, "options": {"temperature": 0.5, "topK": 3}}))


@scene()
def invoke_a_file(play: Play) -> None:
    file = play.folder / "hello.prompty"
    file.write_text("---\nname: hello\nmodel: {id: m, provider: scripted}\n---\nuser:\nHello {{name}}\n")
    with play.script("Hello."):
        play.call("invoke", file, {"name": "Ada"})
        play.call("invoke", play.folder / "missing.prompty")


@scene()
def invoke_calls_come_back(play: Play) -> None:
    with play.script(answer("Let me see.", *looks("a", "b"))):
        play.call("invoke", agent(tools=[tool_named("look")]))


@scene()
def invoke_structured(play: Play) -> None:
    with play.script(ADA, "Ada is 36.", '{"name": "Ada"}'):
        for _ in range(3):
            play.call("invoke", agent(outputs=PERSON))


@scene()
def invoke_output_type(play: Play) -> None:
    with play.script(ADA, "Ada is 36."):
        play.call("invoke", agent(), output_type=Person)
        play.call("invoke", agent(), output_type=Person)


@scene(*WAYS[1::2])
def partials_of_a_stream(play: Play) -> None:
    async def partials_async() -> list[Any]:
        answer = await prompty.invoke_async(agent(outputs=PERSON), stream=True)
        return [value async for value in answer.partials()]

    with play.script(ADA):
        if play.way.asynchronous:
            play.note(asyncio.run(partials_async()))
        else:
            play.note(list(prompty.invoke(agent(outputs=PERSON), stream=True).partials()))


@scene(*WAYS[1::2])
def a_stream_that_is_left(play: Play) -> None:
    async def first_async() -> Any:
        async with await prompty.turn_async(agent(), stream=True) as words:
            return await anext(aiter(words))

    with play.script("One two three."):
        if play.way.asynchronous:
            play.note(asyncio.run(first_async()))
        else:
            with prompty.turn(agent(), stream=True) as words:
                play.note(next(iter(words)))


@scene()
def invoke_bad_inputs(play: Play) -> None:
    wanting = agent(inputs={"q": {"kind": "string", "required": True}, "n": {"kind": "integer"}})
    with play.script("never"):
        play.call("invoke", wanting)
        play.call("invoke", wanting, {"q": "Hi", "n": "many"})


@scene()
def invoke_retries(play: Play) -> None:
    with play.script(busy(), busy(500), "At last."):
        play.call("invoke", agent())


@scene()
def invoke_gives_up(play: Play) -> None:
    with play.script(busy(500), busy(500), "never"):
        play.call("invoke", agent(), max_retries=1)


@scene()
def invoke_bad_request(play: Play) -> None:
    with play.script(Fault(prompty.ModelError("no such field", status=400)), "never"):
        play.call("invoke", agent())


@scene()
def invoke_refusal(play: Play) -> None:
    with play.script(*[Reply(refusal="I will not.", finish_reason="stop")] * 3):
        for api_type in ("chat", "responses", "messages"):
            play.call("invoke", agent(model={"apiType": api_type}))


@scene()
def invoke_cut_stream(play: Play) -> None:
    with play.script(Fault(after=3, reply=answer("One two three four.")), "One two three four."):
        play.call("invoke", agent(), max_retries=0)


@scene()
def invoke_stopped_by_length(play: Play) -> None:
    with play.script(answer("One two", finish_reason="length"), answer("", finish_reason="content_filter")):
        play.call("invoke", agent())
        play.call("invoke", agent())


@scene()
def run_messages(play: Play) -> None:
    picture = prompty.Message("user", [TextPart("What is it?"), prompty.Image("QUJD", "image/png", "low")])
    with play.script("A tree.", "Fine."):
        play.call("run", agent(), [prompty.system("Look."), picture])
        play.call("run", agent(), [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hm"}])
        play.call("run", agent(), [5])


@scene()
def run_tool_history(play: Play) -> None:
    said: Any = [
        {"role": "user", "content": "Look"},
        {"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "look", "arguments": '{"at": "a"}'}}]},
        {"role": "tool", "tool_call_id": "c", "content": "seen a"},
    ]
    with play.script(*["Seen."] * 3):
        for api_type in ("chat", "responses", "messages"):
            play.call("run", agent(model={"apiType": api_type}, tools=[tool_named("look")]), said)


@scene()
def run_structured(play: Play) -> None:
    with play.script(ADA, ADA):
        play.call("run", agent(outputs=PERSON), [prompty.user("Who?")])
        play.call("run", agent(), [prompty.user("Who?")], output_type=Person)


@scene(WAYS[0])
def the_stages_by_themselves(play: Play) -> None:
    made = agent()
    play.note(prompty.render(made, {"q": "Hi"}))
    play.note(pipeline.parse(made, "system:\nBe brief.\nuser:\nHi", trusted=True))
    play.note(prompty.prepare(made, {"q": "system:\nNot a role"}))
    play.note(pipeline.validate_inputs(made, {"q": "x"}))
    play.note(pipeline.cast({"name": "Ada", "age": 36}, Person))
    play.note(repair([prompty.user("Hi"), prompty.assistant("Hm"), prompty.tool_result("gone", "x")]))


# Turns.


@scene()
def turn_text(play: Play) -> None:
    with play.script(answer("Hello there.", reasoning="They are friendly.")):
        play.call("turn", agent(), {"q": "How are you?"})


@scene()
def turn_one_tool(play: Play) -> None:
    for api_type in ("chat", "responses", "messages"):
        kept: dict[str, Any] = {"responses": {"encrypted_content": "eA=="}, "messages": {"signature": "s"}}.get(
            api_type, {}
        )
        with play.script(answer("Let me see.", *looks("a"), reasoning="It may be there.", **kept), "Done."):
            play.call("turn", agent(model={"apiType": api_type}, name="worker"), tools=[look])


@scene()
def turn_parallel_tools(play: Play) -> None:
    calls = [*looks("a", "b"), call("pay", amount=3), *looks("c")]
    with play.script(calls, "Done."):
        play.call("turn", agent(), tools=[look, pay])
    with play.script(calls, "Done."):
        play.call("turn", agent(), tools=[look, pay], max_parallel=2)


@scene()
def turn_sequential_tools(play: Play) -> None:
    ran: list[str] = []

    def look(at: str) -> str:
        ran.append(at)
        return at

    with play.script(looks("a", "b", "c"), "Done."):
        play.call("turn", agent(), tools=[look], tool_execution="sequential")
    with play.script(looks("d", "e"), "Done."):
        play.call("turn", agent(), tools=[prompty.tool(sequential=True)(look)])
    play.note(ran)


@scene()
def turn_failing_tools(play: Play) -> None:
    calls = [call("fail", at="way"), call("look", wrong=1), call("nobody"), call("look", at="a")]
    with play.script(calls, "Sorry."):
        play.call("turn", agent(), tools=[look, fail])


@scene()
def turn_unreadable_arguments(play: Play) -> None:
    broken = prompty.ToolCall(id="c1", name="look", arguments='{"at": ')
    with play.script(answer("", broken), "Sorry."):
        play.call("turn", agent(), tools=[look])


@scene(*WHOLE)
def turn_tool_timeout(play: Play) -> None:
    async def look(at: str) -> str:
        await asyncio.sleep(5)
        return at

    with play.script(looks("a"), "Too slow."):
        play.call("turn", agent(), tools=[look], tool_timeout=0.3)


@scene()
def turn_what_tools_return(play: Play) -> None:
    def give(what: str) -> object:
        picture = [TextPart("Here:"), prompty.Image("QUJD", "image/png")]
        return {"dict": {"a": [1, None]}, "none": None, "picture": picture, "person": Person(name="A", age=1)}[what]

    for api_type in ("chat", "messages"):
        calls = [call("give", what=what) for what in ("dict", "none", "picture", "person")]
        with play.script(calls, "Done."):
            play.call("turn", agent(model={"apiType": api_type}), tools=[give])


@scene()
def turn_declared_and_bound_tools(play: Play) -> None:
    bound = tool_named("look", bindings={"at": {"input": "secret"}})
    made = agent(
        tools=[bound],
        inputs={"q": {"kind": "string", "default": "Hi"}, "secret": {"kind": "string", "sensitive": True}},
    )
    with play.script(call("look"), "Done."):
        play.call("turn", made, {"secret": "the-hidden-place"}, tools=[look])
    with play.script("never"):
        play.call("turn", agent(tools=[tool_named("missing")]))


@scene()
def turn_tool_context(play: Play) -> None:
    def work(at: str, context: prompty.ToolContext) -> str:
        context.progress(1, 2, "half way")
        return f"{context.name} {context.key.rpartition(':')[0] != ''} {at}"

    with play.script(call("work", at="a"), "Done."):
        play.call("turn", agent(), tools=[work])


@scene()
def turn_traced_tool(play: Play) -> None:
    def weigh(at: str) -> int:
        return len(at)

    def look(at: str) -> str:
        with Tracer.start("inside") as span:
            span.record("weight", prompty.trace(weigh)(at))
        return at

    with play.script(looks("abc"), "Done."):
        play.call("turn", agent(), tools=[look])


class Mirror:
    """A kind of tools that answers with its arguments."""

    async def describe(self, tool: Any, agent: Any, /) -> Any:
        async def call(arguments: Any, context: Any) -> object:
            return {"kind": tool.kind, "arguments": arguments}

        parameters: dict[str, object] = {"type": "object", "properties": {"at": {"type": "string"}}}
        function = Function(name=tool.name, description="Mirror.", parameters=parameters)
        return [KindTool(function=function, call=call)]


@scene()
def turn_tool_kinds(play: Play) -> None:
    register_tool_kind("mirror", Mirror())
    register_tool("registered", look)
    made = agent(tools=[{"name": "m", "kind": "mirror", "options": {}}, tool_named("registered")])
    with play.script([call("m", at="a"), call("registered", at="b")], "Done."):
        play.call("turn", made)


# Gate, approval, guardrails, steering.


@scene()
def gate_allows_and_denies(play: Play) -> None:
    def gate(calls: Any) -> Any:
        play.note([(call.name, call.arguments, call.needs_approval) for call in calls])
        return [True, prompty.deny("not there"), False]

    with play.script(looks("a", "b", "c"), "Done."):
        play.call("turn", agent(), tools=[look], gate=gate)
    with play.script(looks("a"), "Done."):
        play.call("turn", agent(), tools=[look], gate=lambda calls: 1 / 0)


@scene()
def gate_answers_later(play: Play) -> None:
    with play.script([*looks("a"), call("pay", amount=5)], "Done."):
        paused = play.call("turn", agent(), tools=[look, pay], gate=lambda calls: [True, prompty.later()])
        again = prompty.Paused.from_json(json.loads(json.dumps(paused.to_json())))
        play.call("resume", agent(), again, [True], tools=[look, pay], gate=lambda calls: [True])


@scene()
def approval_pauses(play: Play) -> None:
    calls = [*looks("a"), call("pay", amount=5), call("pay", amount=500)]
    approval = {"pay": {"when": {"amount": {"minimum": 100}}}, "look": "never"}
    with play.script(calls, "Done."):
        paused = play.call("turn", agent(), tools=[look, pay], approval=approval)
        play.call("resume", agent(), paused, [prompty.deny("too much")], tools=[look, pay], approval=approval)
    with play.script(looks("a", "b"), "Done."):
        paused = play.call("turn", agent(), tools=[look], approval="always")
        paused = play.call("resume", agent(), paused, {paused.pending[1].key: True}, tools=[look], approval="always")
        play.call("resume", agent(), paused, [False], tools=[look], approval="always")


@scene()
def approval_of_the_file(play: Play) -> None:
    made = agent(tools=[tool_named("look", approvalMode={"kind": "always"})])
    with play.script(looks("a"), "Done."):
        paused = play.call("turn", made, tools=[look])
        play.call("resume", made, paused, [True, True], tools=[look])
        play.call("resume", made, paused, [True], tools=[look])


@scene()
def guardrails_deny(play: Play) -> None:
    def no(_: Any) -> Any:
        return prompty.deny("not today")

    with play.script(looks("a"), "Done.", "Said.", "never"):
        play.call("turn", agent(), tools=[look], guardrails=prompty.Guardrails(tool=no))
        play.call("turn", agent(), guardrails=prompty.Guardrails(output=no))
        play.call("turn", agent(), guardrails=prompty.Guardrails(input=no))
        play.call("turn", agent(), guardrails=prompty.Guardrails(input=lambda _: 1 / 0))


@scene()
def guardrails_rewrite(play: Play) -> None:
    guardrails = prompty.Guardrails(
        input=lambda messages: (
            prompty.rewrite([*messages[:-1], prompty.user("[hidden]")]) if len(messages) == 2 else True
        ),
        output=lambda message: prompty.rewrite(message.text.upper()),
        tool=lambda call: prompty.rewrite({"at": "elsewhere"}),
    )
    with play.script(looks("a"), "Done."):
        play.call("turn", agent(), tools=[look], guardrails=guardrails)


@scene()
def guardrails_allow(play: Play) -> None:
    async def yes(_: Any) -> bool:
        return True

    with play.script(looks("a"), "Done."):
        play.call("turn", agent(), tools=[look], guardrails=prompty.Guardrails(input=yes, output=yes, tool=yes))


@scene()
def steering_and_follow_ups(play: Play) -> None:
    steering = prompty.Steering()

    def look(at: str) -> str:
        steering.send("In euros.")
        steering.follow_up("And now?")
        return at

    with play.script(looks("a"), "First.", "Second."):
        play.call("turn", agent(), tools=[look], steering=steering)


# Conversations.


@scene()
def context_budget(play: Play) -> None:
    def summary(messages: Any, characters: int) -> str:
        return f"{len(messages)} messages"

    file = play.folder / "summary.prompty"
    file.write_text(
        "---\nname: summary\nmodel: {id: s, provider: scripted}\n"
        "inputs: {conversation: {kind: string}, characters: {kind: integer}}\n---\n"
        "user:\nSum up in {{characters}} characters:\n{{conversation}}\n"
    )
    with play.script(*looks("a"), "Done.", "Done.", "They talked.", "Done.", "Done."):
        play.call("turn", agent(), messages=history(), tools=[look], context_budget=200)
        play.call("turn", agent(), messages=history(), context_budget=prompty.Context(limit=200, summary=summary))
        play.call("turn", agent(), messages=history(), context_budget=prompty.Context(limit=200, summary=file))
        play.call("turn", agent(), messages=history(), context_budget=prompty.Tokens(50))


@scene()
def sessions(play: Play) -> None:
    store = InProcessMemory()
    thread = agent(
        inputs={"q": "Hi", "before": {"kind": "thread"}},
        instructions="system:\nBe brief.\n{{before}}\nuser:\n{{q}}",
    )
    with play.script(looks("a"), "One.", "Two.", "Three."):
        play.call("turn", agent(), {"q": "First"}, tools=[look], memory=store, session_id="s")
        play.call("turn", agent(), {"q": "Second"}, memory=store, session_id="s")
        play.call("turn", thread, {"q": "Third"}, memory=store, session_id="s")
    play.note(store.load("s"))


@scene()
def sessions_that_pause(play: Play) -> None:
    store = InProcessMemory()
    options: dict[str, Any] = {"tools": [look], "approval": "always", "memory": store}
    with play.script(looks("a"), "Done."):
        paused = play.call("turn", agent(), session_id="s", **options)
        play.note(store.load("s"))
        play.call("resume", agent(), paused, [True], **options)
    play.note(store.load("s"))


@scene()
def histories_are_repaired(play: Play) -> None:
    called = {"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    asked = {"role": "assistant", "content": "", "tool_calls": [called]}
    said = [prompty.user("Hi"), asked, prompty.user("And?"), prompty.tool_result("gone", "x")]
    with play.script("Done."):
        play.call("turn", agent(), messages=said)


# Failures and limits.


@scene()
def turn_retries(play: Play) -> None:
    with play.script(busy(), looks("a"), busy(503), "Done."):
        play.call("turn", agent(), tools=[look])
    with play.script(busy(500), busy(500)):
        play.call("turn", agent(), max_retries=1)


@scene()
def turn_refusal(play: Play) -> None:
    with play.script(Reply(refusal="I will not.", finish_reason="stop")):
        play.call("turn", agent())


@scene()
def turn_cut_stream(play: Play) -> None:
    cut = Fault(after=3, reply=answer("One two three four."))
    with play.script(looks("a"), cut, "One two three four.", cut):
        play.call("turn", agent(), tools=[look])
        play.call("turn", agent(), max_retries=0)


@scene()
def turn_fallbacks(play: Play) -> None:
    down = Fault(prompty.ModelError("overloaded", status=529, retryable=True))
    second = {"id": "third", "provider": "scripted", "apiType": "messages"}
    with play.script(down, down, looks("a"), "Done."):
        play.call("turn", agent(), tools=[look], fallbacks=["second", second], max_retries=0)
    with play.script(down, down):
        play.call("turn", agent(metadata={"fallbacks": ["second"]}), max_retries=0)
    with play.script(Fault(prompty.ModelError("bad", status=400))):
        play.call("turn", agent(), fallbacks=["second"])


@scene()
def turn_repairs_its_answer(play: Play) -> None:
    with play.script("Ada", ADA, "three", "four", '{"name": 1}', ADA):
        play.call("turn", agent(), output_type=Person)
        play.call("turn", agent(), output_type=Person)
        play.call("turn", agent(outputs=PERSON))


@scene()
def turn_structured_with_tools(play: Play) -> None:
    with play.script(looks("a"), ADA):
        play.call("turn", agent(outputs=PERSON), tools=[look], output_type=Person)


@scene()
def budgets(play: Play) -> None:
    used = prompty.Usage(input_tokens=90, output_tokens=20)
    with play.script(answer("", *looks("a"), usage=used), "never"):
        play.call("turn", agent(), tools=[look], budget=prompty.Budget(tokens=100))
    with play.script(looks("a"), looks("b"), looks("c")):
        play.call("turn", agent(), tools=[look], max_iterations=2)
    with play.script("never"):
        play.call("turn", agent(), budget=prompty.Budget(cost=1))


@scene()
def stop_conditions(play: Play) -> None:
    with play.script(looks("a"), looks("b"), "never"):
        play.call("turn", agent(), tools=[look], stop=prompty.Stop.steps(2))
    with play.script(looks("a"), call("pay", amount=1), "never"):
        play.call("turn", agent(), tools=[look, pay], stop=prompty.Stop.tool_called("pay"))


@scene()
def cancelling(play: Play) -> None:
    cancel = prompty.CancelToken()
    with play.script("never"):
        cancel.cancel("before it began")
        play.call("turn", agent(), cancel=cancel)
    during = prompty.CancelToken()

    def look(at: str) -> str:
        during.cancel("in a tool")
        return at

    with play.script(looks("a"), "never"):
        play.call("turn", agent(), tools=[look], cancel=during)


@scene()
def options_that_do_not_fit(play: Play) -> None:
    with play.script("never"):
        play.call("turn", agent(), session_id="s")
        play.call("turn", agent(), max_iterations=0)
        play.call("turn", agent(), context_budget=0)
        play.call("turn", agent(), tools=[5])
        play.call("turn", agent(), fallbacks=[{"id": ["no"]}])
        play.call("invoke", agent(model={"provider": "nobody"}))


# Prompts as tools, pairs of the host, recordings.


def write_family(play: Play, mode: str) -> Any:
    child = (
        "---\nname: child\ndescription: Answers.\nmodel: {id: c, provider: scripted}\n"
        "inputs: {question: {kind: string, required: true}}\n"
        "tools: [{name: look, kind: function, parameters: [{name: at, kind: string}]}]\n---\nuser:\n{{question}}\n"
    )
    parent = (
        "---\nname: parent\nmodel: {id: m, provider: scripted}\n"
        f"tools: [{{name: ask, kind: prompty, path: child.prompty, mode: {mode}}}]\n---\nuser:\nGo on.\n"
    )
    (play.folder / "child.prompty").write_text(child)
    (play.folder / "parent.prompty").write_text(parent)
    return play.folder / "parent.prompty"


@scene()
def a_single_child(play: Play) -> None:
    with play.script(call("ask", question="Why?"), "Because.", "Done."):
        play.call("turn", write_family(play, "single"), tools=[look])
    with play.script(call("ask", question="Why?"), Fault(prompty.ModelError("gone", status=404)), "Sorry."):
        play.call("turn", write_family(play, "single"), tools=[look])


@scene()
def an_agentic_child(play: Play) -> None:
    with play.script(call("ask", question="Why?"), *looks("a"), "Because.", "Done."):
        play.call("turn", write_family(play, "agentic"), tools=[look])
    with play.script(call("ask", question="Why?"), *looks("a"), "Denied.", "Done."):
        gate = lambda calls: [call.name != "look" for call in calls]  # noqa: E731  an argument
        play.call("turn", write_family(play, "agentic"), tools=[look], gate=gate)
    with play.script(call("ask", question="Why?"), *looks("a"), "never"):
        play.call("turn", write_family(play, "agentic"), tools=[look], budget=prompty.Budget(tokens=25))


class Echo:
    """A model that answers with what it was told."""

    def execute(self, agent: Any, messages: Any, /) -> object:
        if messages[-1].text == "fail":
            raise ConnectionError("no line")
        return {"said": messages[-1].text}

    async def execute_async(self, agent: Any, messages: Any, /) -> object:
        await asyncio.sleep(0)
        return self.execute(agent, messages)


class Said:
    """Reads what `Echo` answers."""

    def process(self, agent: Any, response: Any, /) -> object:
        if response["said"] == "call":
            return [prompty.ToolCall(id="c", name="look", arguments='{"at":"a"}')]
        return response["said"]

    async def process_async(self, agent: Any, response: Any, /) -> object:
        await asyncio.sleep(0)
        return self.process(agent, response)


@scene()
def a_pair_of_the_host(play: Play) -> None:
    register_executor("echo", Echo())
    register_processor("echo", Said())
    made = agent(model={"provider": "echo"})
    for question in ("Hello", "call", "fail"):
        play.call("invoke", made, {"q": question})
    play.call("run", made, [{"role": "user", "content": "One"}, prompty.user("Two")])
    play.call("turn", made, {"q": "Hello"})
    play.call("turn", made, {"q": "call"}, tools=[look], max_iterations=2)
    play.call("invoke", made, {"q": ADA}, output_type=Person)


@scene()
def half_a_pair(play: Play) -> None:
    class Whole(Echo):
        def execute(self, agent: Any, messages: Any, /) -> object:
            message = {"role": "assistant", "content": f"You said {messages[-1].text}"}
            return {"id": "a", "model": "m", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}

    register_executor("azure", Whole())
    play.call("invoke", agent(model={"provider": "azure"}))
    play.call("turn", agent(model={"provider": "azure"}))
    register_executor("half", Echo())
    play.call("invoke", agent(model={"provider": "half"}))


@scene()
def recordings(play: Play) -> None:
    file = play.folder / "recording.jsonl"
    with play.script(looks("a"), busy(), "Done."), Recorder(file):
        play.call("turn", agent(), tools=[look])
    play.note([json.loads(line) for line in file.read_text().splitlines()])
    with Player(file):
        play.call("turn", agent(), tools=[look])
        play.call("invoke", agent(), {"q": "Something else"})


# Over the network of this machine, with the clients of the providers.


@contextmanager
def served(play: Play, *replies: Any) -> Iterator[Server]:
    with Server() as server:
        server.answer(*replies)
        yield server
        play.requests += [{"path": request.path, "body": request.body} for request in server.requests]


def served_agent(server: Server, provider: str = "openai", api_type: str = "chat", **parts: Any) -> Any:
    base = server.url if provider == "anthropic" else f"{server.url}/v1"
    connection = {"kind": "key", "endpoint": base, "apiKey": "a-key-of-no-known-shape"}
    return agent(model={"provider": provider, "apiType": api_type, "connection": connection}, **parts)


def chat_reply(text: str) -> dict[str, Any]:
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    usage = {"prompt_tokens": 3, "completion_tokens": 5}
    return {"id": "a", "model": "m", "choices": [choice], "usage": usage}


def chat_events(*words: str) -> list[bytes]:
    head = {"id": "a", "model": "m"}
    deltas = [{**head, "choices": [{"index": 0, "delta": {"content": word}}]} for word in words]
    last = {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    return [event(one) for one in (*deltas, last, "[DONE]")]


@scene()
def served_chat(play: Play) -> None:
    wait = {"retry-after-ms": "1"}
    answer = stream(*chat_events("Hel", "lo")) if play.way.streamed else json_reply(chat_reply("Hello"))
    with served(play, json_reply({"error": {"message": "busy"}}, 429, wait), answer) as server:
        play.call("invoke", served_agent(server))
    with served(play, json_reply({"error": {"message": "broken"}}, 500, wait), answer) as server:
        play.call("turn", served_agent(server))
    with served(play, json_reply({"error": {"message": "no such model"}}, 404)) as server:
        play.call("invoke", served_agent(server))


@scene(*WAYS[1::2])
def served_cut_stream(play: Play) -> None:
    with served(play, stream(chat_events("Hel", "lo")[0], CLOSE)) as server:
        play.call("invoke", served_agent(server), max_retries=0)
    with served(play, stream(chat_events("Hel", "lo")[0], CLOSE), stream(*chat_events("Hel", "lo"))) as server:
        play.call("turn", served_agent(server))


@scene()
def served_slowly(play: Play) -> None:
    with served(play, [Pause(30)]) as server:
        play.call("invoke", served_agent(server), timeout=0.5, max_retries=0)


@scene()
def served_embeddings(play: Play) -> None:
    vectors = [{"index": 0, "embedding": [0.1, 0.2]}]
    with served(play, json_reply({"model": "m", "data": vectors, "usage": {"prompt_tokens": 5}})) as server:
        play.call("invoke", served_agent(server, api_type="embedding", instructions="user:\nHello"))
    with served(play, json_reply({"data": []})) as server:
        play.call("invoke", served_agent(server, api_type="embedding", instructions="user:\nHello"), max_retries=0)


@scene()
def served_images(play: Play) -> None:
    found = {"created": 1, "data": [{"b64_json": "QUJD"}], "usage": {"input_tokens": 5, "output_tokens": 9}}
    with served(play, json_reply(found)) as server:
        play.call("invoke", served_agent(server, api_type="image", instructions="user:\nA cat"))


@scene(*WHOLE)
def served_anthropic(play: Play) -> None:
    said = {"id": "a", "type": "message", "role": "assistant", "model": "m", "stop_reason": "end_turn"}
    usage = {"input_tokens": 3, "output_tokens": 5}
    thought = {"type": "thinking", "thinking": "Hm.", "signature": "s"}
    use = {"type": "tool_use", "id": "c", "name": "look", "input": {"at": "a"}}
    first = {**said, "content": [thought, use], "stop_reason": "tool_use", "usage": usage}
    last = {**said, "content": [{"type": "text", "text": "Done."}], "usage": usage}
    with served(play, json_reply(first), json_reply(last)) as server:
        play.call("turn", served_agent(server, provider="anthropic"), tools=[look])
