"""Tests of prompts: cases in `answer.test.yaml` beside `answer.prompty`, run offline from recordings or against models.

`case_file` defines the file and `reading` reads it, `plan` expands cases into trials, `trial` runs one, and `checks`
decides about what was observed. `runner` runs many and keeps a ledger. Statistics, baselines and reports work on the
results alone.
Above: `cli.test`, and the pytest plugin. Below: `api`, `batches` (ledger), `rows`, `viewer` (the style of the page).
"""
