"""Run a prompt once for each row. A batch over a file goes on after an interruption without running a row twice.

`batch` runs rows a program has in memory. For a file, `row_index` gives each row an id and leaves finished ones out,
`local` runs rows in this process and `shared` on the workers of a database, and `ledger` writes a record (`records`)
for each. `throttle` adapts the number of concurrent calls to the provider (`concurrency_limit`).
Above: `cli.batch`. Below: `api`, `durable`, `rows`.
"""

from prompty.batches.batch import RowResult, batch, batch_async

__all__ = ["RowResult", "batch", "batch_async"]
