"""Tools as functions a model can be told about (§7.1.3), without what the host fills in (§2.9.1)."""

from prompty.model.request import Function
from prompty.model.tool import FunctionTool
from prompty.wire.schema import schema_of


def function_of(tool: FunctionTool) -> Function:
    """A function tool as the model sees it: parameters that are bound are not there."""
    visible = [parameter for parameter in tool.parameters if parameter.name not in tool.bindings]
    parameters = schema_of(visible, strict=tool.strict)
    return Function(name=tool.name, description=tool.description, parameters=parameters, strict=tool.strict)
