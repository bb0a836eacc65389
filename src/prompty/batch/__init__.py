"""Run a prompt once for each row of a file, and go on after an interruption without running a row twice.

`rows` reads the file, `row_index` gives each row an id and leaves out finished ones, `local` runs rows in this process
and `shared` on the workers of a database, `ledger` writes a record (`records`) for each. `throttle` adapts the number
of concurrent calls to the provider (`concurrency_limit`).
Above: `cli.batch`. Below: `api`, `durable`.
"""
