"""Made-up secrets: of every kind one for every place, so that finding one says where it got out."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from prompty.model.message import Json

NEEDLE = 12


@dataclass(frozen=True)
class Kind:
    """A kind of secret. `text` is how it stands in a text that tells what it is, None where no text can tell; those
    that have a `shape` tell it themselves."""

    name: str
    made: Callable[[str], str]
    text: Callable[[str], str] | None = "use {} for it".format
    shape: bool = True
    in_headers: bool = True
    in_urls: bool = True


KINDS = [
    Kind("OpenAI", lambda core: f"sk-proj-{core}"),
    Kind("Anthropic", lambda core: f"sk-ant-api03-{core}-AA"),
    Kind("Azure", lambda core: core, text=None, shape=False),
    Kind("AWS", lambda core: f"AKIA{core[:16].upper()}"),
    Kind("AWS signature", lambda core: core, "SignedHeaders=host, Signature={}".format, in_urls=False, shape=False),
    Kind("GitHub", lambda core: f"ghp_{core}1234"),
    Kind("GitLab", lambda core: f"glpat_{core}"),
    Kind("Hugging Face", lambda core: f"hf-{core}"),
    Kind("GitHub with a hyphen", lambda core: f"ghp-{core}"),
    Kind("Slack", lambda core: f"xoxb-2345678901-{core}"),
    Kind("Google", lambda core: f"AIzaSy{core}_"),
    Kind("JWT", lambda core: f"eyJhbGciOiJIUzI1NiJ9.eyJ{core[:16]}.{core[16:]}"),
    Kind(
        "Bearer",
        lambda core: f"{core[:16]}.~+/{core[16:]}=",
        "Authorization: Bearer {}".format,
        in_urls=False,
        shape=False,
    ),
    Kind("Basic", lambda core: f"{core}==", "authorization: Basic {}".format, in_urls=False, shape=False),
    Kind("URL password", lambda core: core, "see https://ada:{}@host.invalid/a".format, shape=False),
    Kind("query", lambda core: core, "see https://host.invalid/a?n=1&api_key={}&m=2".format, shape=False),
    Kind("cookie", lambda core: core, "Set-Cookie: session={}; Path=/".format, shape=False),
    Kind("setting", lambda core: core, 'DB_PASSWORD="{}"'.format, shape=False),
    Kind(
        "storage",
        lambda core: f"{core}/+=",
        "DefaultEndpointsProtocol=https;AccountKey={};".format,
        in_urls=False,
        shape=False,
    ),
    Kind(
        "PEM",
        lambda core: f"-----BEGIN RSA PRIVATE KEY-----\n{core[:16]}\n{core[16:]}+/=\n-----END RSA PRIVATE KEY-----\n",
        in_headers=False,
        in_urls=False,
    ),
    Kind(
        "odd password",
        lambda core: f'{core[:16]}ä"\\\t {core[16:]}',
        text=None,
        shape=False,
        in_headers=False,
        in_urls=False,
    ),
]


class Planted:
    """The secrets of one kind in one scene, each made when it is planted somewhere."""

    def __init__(self, kind: Kind, scene: str) -> None:
        self.kind, self.scene = kind, scene
        self.places: dict[str, str] = {}

    def core(self, place: str) -> str:
        """What is secret in a secret: 32 characters that stand nowhere else."""
        core = sha256(f"{self.kind.name}, {self.scene}, {place}".encode()).hexdigest()[:32]
        self.places[place] = core
        return core

    def bare(self, place: str) -> str:
        """The secret itself, for places that are known to hold one."""
        return self.kind.made(self.core(place))

    def told(self, place: str) -> str:
        """A text with the secret in it, for places that may hold anything."""
        if self.kind.text is None:
            return "nothing that one could know"
        return self.kind.text(self.kind.made(self.core(place)))

    def url(self, server: str) -> str:
        """The address of a server, with a secret in it where the kind can stand there: as password or as parameter."""
        if not self.kind.in_urls:
            return f"{server}/v1"
        if self.scene == "refused":
            return f"{server}/v1?n=1&api_key={self.bare('parameter of the endpoint')}"
        return server.replace("://", f"://ada:{self.bare('user of the endpoint')}@") + "/v1"


def needles(core: str) -> set[bytes]:
    """The beginning and the end of a secret, as bytes: not even a part of it may be found."""
    return {part.encode() for part in (core[:NEEDLE], core[-NEEDLE:], core[:NEEDLE].upper())}


def all_needles_in(content: bytes) -> set[bytes]:
    """Everything in there that could be the beginning or the end of a secret."""
    runs = set(re.findall(rb"[0-9a-fA-F]{%d,}" % NEEDLE, content))
    return {run[start : start + NEEDLE] for run in runs for start in range(len(run) - NEEDLE + 1)}


def prompt(planted: Planted, url: str, name: str) -> str:
    """A prompt with secrets wherever it can have them."""
    front: Json = {
        "name": name,
        "model": {"id": "m", "provider": "openai", "connection": connection(planted, url)},
        "inputs": {
            "question": {"kind": "string"},
            "api_key": {"kind": "string"},
            "note": {"kind": "string", "sensitive": True},
            "profile": {"kind": "object", "sensitive": True, "default": {}},
            "remark": {"kind": "string", "sensitive": True, "default": planted.bare("default of a sensitive input")},
            "db_password": {"kind": "string", "default": planted.bare("default of an input of a telling name")},
            "account": {"kind": "string", "sensitive": True},
            "user_token": {"kind": "string"},
        },
        "tools": [
            {
                "name": "login",
                "kind": "function",
                "parameters": {name: {"kind": "string"} for name in ("city", "password", "payload", "about")},
                "bindings": {
                    "pin": planted.bare("static binding"),
                    "account": {"input": "account"},
                    "user": {"input": "user_token"},
                },
            },
            {"name": "fails", "kind": "function", "parameters": {"city": {"kind": "string"}}},
        ],
    }
    body = "system:\n{{note}} {{profile.deep[0]}} {{remark}}\nuser:\n{{question}} {{api_key}} {{db_password}}"
    return f"---\n{json.dumps(front)}\n---\n{body}"


def connection(planted: Planted, url: str) -> Json:
    key = planted.bare("apiKey") if planted.kind.in_headers else "a-key-of-no-known-shape"
    return {"kind": "key", "endpoint": planted.url(url), "apiKey": key}


def inputs(planted: Planted) -> Json:
    """Inputs of every kind, and one that is nobody's secret."""
    return {
        "question": f"What of Lisbon-of-{planted.scene}? {planted.told('text of an input')}",
        "api_key": planted.bare("input of a telling name"),
        "note": planted.bare("sensitive input"),
        "profile": {"deep": [planted.bare("inside of a sensitive input")]},
        "account": planted.bare("input that is bound"),
        "user_token": planted.bare("input of a telling name that is bound"),
    }


def arguments(planted: Planted) -> str:
    """What a model writes when it calls `login`."""
    inner = {
        "client_secret": planted.bare("name in JSON in an argument"),
        "Ocp-Apim-Subscription-Key": planted.bare("another name in JSON in an argument"),
        "note": planted.told("JSON in an argument"),
    }
    return json.dumps(
        {
            "city": "Faro",
            "password": planted.bare("argument of a telling name"),
            "payload": json.dumps(inner),
            "about": f"{planted.told('text of an argument')} {repeated(planted)}",
        }
    )


def result(planted: Planted) -> Json:
    """What `login` gives back."""
    return {
        "city": "Faro",
        "accessToken": planted.bare("name in a result"),
        "list": [{"private_key": planted.bare("name deep in a result")}, {"key": planted.bare("shortest name")}],
        "raw": json.dumps({"secret": planted.bare("name in JSON in a result"), "age": 7}),
        "message": planted.told("text of a result"),
        "echo": repeated(planted),
    }


def known(planted: Planted) -> str:
    """What a server, a tool or a host says that repeats the credentials of the prompt."""
    return _all(planted, "apiKey", "user of the endpoint", "parameter of the endpoint", "static binding")


def repeated(planted: Planted) -> str:
    """The same, and what the prompt was given: that stays out of traces, but an error says what it says."""
    given = (
        "sensitive input",
        "inside of a sensitive input",
        "input of a telling name",
        "default of a sensitive input",
    )
    return f"{known(planted)} and {_all(planted, *given)}"


def _all(planted: Planted, *places: str) -> str:
    return " and ".join(planted.kind.made(planted.places[place]) for place in places if place in planted.places)


def answers(planted: Planted) -> list[Any]:
    """What the model says: it calls a tool, then one that fails, and answers."""
    return [
        message("tool_calls", planted.told("words of the model"), ("login", arguments(planted))),
        message("tool_calls", "", ("fails", '{"city": "Faro"}')),
        message("stop", f"It is as I said: {repeated(planted)}."),
    ]


def message(finish: str, text: str, *calls: tuple[str, str]) -> Json:
    """An answer of the chat API."""
    called = [
        {"index": 0, "id": f"call_{name}", "type": "function", "function": {"name": name, "arguments": given}}
        for name, given in calls
    ]
    said = {"role": "assistant", "content": text, **({"tool_calls": called} if called else {})}
    return {"id": "a", "model": "m", "choices": [{"index": 0, "message": said, "finish_reason": finish}]}


def as_events(whole: Any) -> list[Any]:
    """The same answer as a stream."""
    [choice] = whole["choices"]
    delta = {"index": 0, "delta": choice["message"]}
    end = {"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}
    return [{**whole, "choices": [delta]}, {**whole, "choices": [end]}, "[DONE]"]
