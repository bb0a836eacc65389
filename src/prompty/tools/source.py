"""Import Python code that the user named: a file, or an installed module."""

import traceback
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

from prompty.errors import ToolError
from prompty.safety.redaction import mask_secrets


def import_source(source: str) -> ModuleType:
    path = Path(source)
    if path.suffix != ".py":
        try:
            return import_module(source)
        except ImportError as error:
            raise ToolError(f"there is no module '{source}': {error}", "Name a Python file or a module.") from None
    spec = spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise ToolError(f"there is no file '{source}'", "Name a Python file or an installed module.")
    module = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise ToolError(_describe_failure(error, path), "Fix the file. To see the traceback, add --debug.") from error
    return module


def _describe_failure(error: Exception, path: Path) -> str:
    """Return the reason why a file cannot be imported, with its line."""
    if isinstance(error, SyntaxError):
        return f"{error.filename}:{error.lineno}: {error.msg}"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename) == path.absolute()]
    line = f":{frames[-1].lineno}" if frames else ""
    cause = next(iter(mask_secrets(f"{type(error).__name__}: {error}").splitlines()), "")
    return f"{path}{line}: {cause}"
