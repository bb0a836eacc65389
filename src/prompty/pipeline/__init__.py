"""The stages from a file to a result, in order, for frameworks that need the parts of a call.

load (files, frontmatter, source_map, references, definitions, compose) → model_override → validate → prepare (render →
parse) → request. Each turns data into data; only `files` opens files. Beside them: `variants`, `packages`, `dotenv` and
`version_1`, which few prompts need, `history`, which repairs messages, and `build` and `migrate`, which write files.

The public names are imported on first use: some of them are above this package, which imports none of these.
"""

from prompty.lazy import import_lazily

TYPE_CHECKING = False  # type checkers take it for true; importing it from typing would cost more than this module

if TYPE_CHECKING:
    from prompty.api import (
        executor_of as executor_of,
        invoke_agent as invoke_agent,
        process as process,
        process_stream as process_stream,
        processor_of as processor_of,
        run as run,
    )
    from prompty.api_async import (
        invoke_agent_async as invoke_agent_async,
        load_async as load_async,
        parse_async as parse_async,
        prepare_async as prepare_async,
        process_async as process_async,
        process_stream_async as process_stream_async,
        render_async as render_async,
        run_async as run_async,
    )
    from prompty.loop.options import CallOptions as CallOptions, TurnOptions as TurnOptions
    from prompty.pipeline.prepare import parse as parse, validate_inputs as validate_inputs
    from prompty.wire.structured import cast as cast

if not TYPE_CHECKING:  # a type checker that saw `__getattr__` would accept every name
    __getattr__, __dir__ = import_lazily(__name__)
