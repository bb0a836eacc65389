"""Import all that a mistake may need, once, in the process that all of them are forked from."""

import gc
from contextlib import suppress
from importlib import import_module
from pathlib import Path

import prompty

OTHERS = ("openai", "anthropic", "mcp", "benchmarks.mistakes.perform")
LEFT_OUT = ("__main__", "durable")
SOURCES = Path(prompty.__file__).parent


def find_modules() -> list[str]:
    """Return the names of the package's modules, but those that no mistake needs."""
    paths = [file.relative_to(SOURCES) for file in SOURCES.rglob("*.py")]
    return [
        ".".join(("prompty", *path.with_suffix("").parts)).removesuffix(".__init__")
        for path in paths
        if not path.as_posix().startswith(LEFT_OUT) and path.stem != "__main__" and "templates" not in path.parts
    ]


for name in (*OTHERS, *find_modules()):
    with suppress(ImportError):
        import_module(name)
gc.freeze()  # collecting all this would take each of them longer than all else
