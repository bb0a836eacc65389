"""Run a prompt once for each row. A batch over a file continues after an interruption without running a row twice.

`batch` runs rows in memory. For a file, `row_index` gives each row an id and skips finished rows, `local` runs rows in
this process and `shared` on a database's workers, and `ledger` writes a record (`records`) for each. `throttle` adapts
the number of concurrent calls to the provider.
Above: `cli.batch`. Below: `api`, `durable`.
"""

from prompty.batches.batch import RowResult, batch, batch_async, batch_stream, batch_stream_async

__all__ = ["RowResult", "batch", "batch_async", "batch_stream", "batch_stream_async"]
