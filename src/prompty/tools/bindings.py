"""What the host puts into a call's arguments (§2.9.1)."""

from collections.abc import Mapping

from prompty.errors import InputError
from prompty.model.tool import Binding


def bound_arguments(
    arguments: Mapping[str, object], bindings: Mapping[str, Binding], inputs: Mapping[str, object]
) -> dict[str, object]:
    """The arguments a tool is called with. A binding wins over whatever the model wrote for that name."""
    filled = {name: _value(name, binding, inputs) for name, binding in bindings.items()}
    return {**arguments, **filled}


def _value(name: str, binding: Binding, inputs: Mapping[str, object]) -> object:
    if binding.input is None:
        return binding.value.get_secret_value() if binding.value is not None else None
    if binding.input not in inputs:
        raise InputError(
            binding.input,
            f"the parameter '{name}' is bound to the input '{binding.input}', which has no value",
            f"Pass inputs={{'{binding.input}': …}}, or give it a `default:` in the file.",
        )
    return inputs[binding.input]
