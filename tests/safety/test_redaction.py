"""Every shape of secret is masked, wherever it could come out."""

import json
import logging
import string
from collections.abc import Iterator
from contextlib import redirect_stderr
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import pytest
from hypothesis import example, given, settings, strategies as st

from prompty import ModelError, trace_to, turn
from prompty.batches.records import describe_error
from prompty.safety.redaction import MASK, Redactor, find_secret, leaves, mask_secrets
from prompty.testing import Recorder
from prompty.tracing import Tracer
from tests.drivers.clients import close_clients
from tests.drivers.wires import Chat
from tests.loopback import Server, json_reply

ALNUM = string.ascii_letters + string.digits
MARK = "N33DLE"  # stands nowhere else
CORE = st.text(ALNUM, min_size=6, max_size=40).map(MARK.__add__)
PREFIXES = ["sk", "pk", "rk", "ghp", "gho", "ghs", "github_pat", "glpat", "hf", "xoxa", "xoxb", "xoxp", "xoxr", "xoxs"]


class Secret(NamedTuple):
    """A text with a secret in it, and the part that must not come out."""

    text: str
    core: str


def prefixed(prefix: str, separator: str, core: str) -> Secret:
    return Secret(f"use {prefix}{separator}{core} for it", core)


secrets = st.one_of(
    st.builds(prefixed, st.sampled_from(PREFIXES), st.sampled_from("-_"), CORE),
    st.text(string.ascii_uppercase + string.digits, min_size=10, max_size=10).map(
        lambda rest: Secret(f"AWS AKIA{MARK}{rest}", MARK + rest)
    ),
    st.text(ALNUM + "_-", min_size=27, max_size=40).map(lambda rest: Secret(f"maps AIza{MARK}{rest}", MARK + rest)),
    st.builds(lambda scheme, core: Secret(f"sent: {scheme} {core}", core), st.sampled_from(["Bearer", "Basic"]), CORE),
    st.builds(lambda head, core: Secret(f"jwt eyJ{head}.{core}.{core}", core), CORE, CORE),
    st.builds(
        lambda kind, core: Secret(f"-----BEGIN {kind}PRIVATE KEY-----\n{core}\n-----END {kind}PRIVATE KEY-----", core),
        st.sampled_from(["", "RSA ", "EC "]),
        CORE,
    ),
    CORE.map(lambda core: Secret(f"see https://ada:{core}@host.invalid/a", core)),
    st.builds(
        lambda name, core: Secret(f"see https://host.invalid/a?n=1&{name}={core}&m=2", core),
        st.sampled_from(["sig", "signature", "key", "code", "auth"]),
        CORE,
    ),
)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server() as server:
        yield server
        close_clients()


def run_with(text: str, folder: Path, server: Server) -> dict[str, str]:
    """Return all that comes out of a turn in which the file, the model, a listener and the server say `text`."""
    console, log = StringIO(), StringIO()
    handler = logging.StreamHandler(log)
    logging.getLogger("prompty").addHandler(handler)
    agent = Chat().agent(server, description=text)

    def listener(event: object) -> None:
        raise RuntimeError(text)

    server.answer(json_reply(Chat().whole(text)), json_reply({"error": {"message": text}}, 401))
    try:
        trace_to("console")
        trace_to(f"file:{folder}")
        with redirect_stderr(console), Recorder(folder / "recording.jsonl"):
            turn(agent, on_event=listener)
            with pytest.raises(ModelError) as failed:
                turn(agent, max_retries=0)
    finally:
        Tracer.clear()
        logging.getLogger("prompty").removeHandler(handler)
    return {
        "trace": "".join(path.read_text() for path in folder.glob("*.*.jsonl")),
        "recording": (folder / "recording.jsonl").read_text(),
        "console": console.getvalue(),
        "log": log.getvalue(),
        "error": str(failed.value),
        "repr": repr(agent.model_copy(update={"name": text})),  # it has no description
        "notebook": agent._repr_html_(),
        "batch line": describe_error(RuntimeError(text), agent, {}).message,
    }


@given(secrets)
@example(prefixed("glpat", "_", f"{MARK}0123456789"))
@example(prefixed("hf", "-", f"{MARK}0123456789"))
@example(prefixed("ghp", "-", f"{MARK}0123456789"))
@settings(max_examples=40, deadline=None)
def test_every_shape_of_secret_is_masked_in_all_that_comes_out(server: Server, secret: Secret) -> None:
    with TemporaryDirectory() as folder:
        outputs = run_with(secret.text, Path(folder), server)
    masked = {name: MASK in output or json.dumps(MASK)[1:-1] in output for name, output in outputs.items()}
    assert masked == dict.fromkeys(outputs, True)
    assert [name for name, output in outputs.items() if secret.core in output] == []


@given(st.text(max_size=30), secrets, st.text(max_size=30))
def test_a_secret_is_masked_in_any_text(before: str, secret: Secret, after: str) -> None:
    text = f"{before} {secret.text} {after}"
    assert secret.core not in mask_secrets(text)
    assert find_secret(text)


@given(secrets, st.lists(st.text(ALNUM, min_size=1, max_size=7), max_size=3))
def test_a_short_sensitive_value_inside_a_secret_does_not_break_its_shape(secret: Secret, values: list[str]) -> None:
    redactor = Redactor([*values, secret.core[:4]])
    masked = redactor.mask(secret.text)
    assert secret.core[4:] not in masked


def test_a_redactor_masks_values_of_any_kind_and_those_of_its_parent() -> None:
    parent = Redactor()
    redactor = Redactor([{"pin": 4711, "names": ["Adam", None, True]}], parent=parent)
    parent.hide(['a "quoted" value'])
    text = json.dumps({"pin": 4711, "text": 'Adam has a "quoted" value', "true": True})
    assert redactor.mask(text) == f'{{"pin": {MASK}, "text": "{MASK} has {MASK}", "true": true}}'


def test_values_that_are_too_short_are_left_alone() -> None:
    assert Redactor(["1", "abc", "abcd"]).mask("1 abc abcd") == f"1 abc {MASK}"


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        "A-{}-7",
        "_{}_",
        "id={}&n=1",
        '"{}"',
        "¿{}?",
        "line\n{}",
        "— {}",
        "%3D{}",
        "\x1b[31m{}\x1b[0m",
        "私は{}です",
    ],
)
def test_a_value_is_masked_where_no_letter_continues_it(text: str) -> None:
    for one in (text, json.dumps(text), json.dumps(json.dumps(text))):
        assert Redactor(["Adam"]).mask(one.replace("{}", "Adam")) == one.replace("{}", MASK)


@pytest.mark.parametrize("text", ["Adamant", "MacAdam", "Adam1", "20Adam26", "Adamé", "Abrahamadam"])
def test_nothing_is_masked_inside_a_word(text: str) -> None:
    assert Redactor(["Adam", "adam"]).mask(f"before {text} after") == f"before {text} after"


def test_the_texts_and_numbers_inside_a_value_are_found_wherever_it_keeps_them() -> None:
    @dataclass
    class Card:
        number: str
        digits: tuple[int, ...]

    assert set(leaves({"a": Card("4711", (1, 2)), "b": {"x", ""}, "c": [None, True]})) == {"4711", "1", "2", "x"}
