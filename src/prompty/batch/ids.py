"""What a row is called: a hash of the prompt, its model and the row. The same question has the same name tomorrow."""

import json
from collections.abc import Mapping
from hashlib import sha256

from prompty.model.agent import PromptAgent
from prompty.redaction import MASK

_LENGTH = 32


def prompt_hash(agent: PromptAgent) -> str:
    """A hash of what is asked: the prompt and its model, and not where the model is reached or who pays."""
    data = agent.model_dump(mode="json", by_alias=True, exclude={"path": True, "model": {"connection"}})
    return _hash(data)


def row_hash(prompt: str, inputs: Mapping[str, object]) -> str:
    """A hash of a row. Give it the inputs as they may be shown: a hash of a short secret would give it away."""
    return _hash([prompt, inputs])


def row_id(hash: str, occurrence: int) -> str:
    """The id of a row; equal rows are told apart by a running number."""
    return hash if occurrence == 1 else f"{hash}-{occurrence}"


def shown_inputs(agent: PromptAgent, inputs: Mapping[str, object]) -> dict[str, object]:
    """Inputs without the values that the file calls sensitive."""
    sensitive = {declared.name for declared in agent.inputs if declared.sensitive}
    return {name: MASK if name in sensitive else value for name, value in inputs.items()}


def _hash(value: object) -> str:
    return sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:_LENGTH]
