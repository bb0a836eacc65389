"""Provider batches: rows that a provider runs within a day, at half of the price.

`run` submits rows in chunks and collects their results. Its `journal` names each chunk before the provider is asked to
run it, so a process that takes over finds the chunk instead of paying for it again. `store` keeps the rows on disk,
`row_calls` builds requests and results with the loop of `invoke`, and `openai` and `anthropic` are the two APIs.
Above: `cli.batch`, `batches.batch`. Below: `batches.job`, `drivers`.
"""
