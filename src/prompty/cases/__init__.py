"""Tests of prompts: cases in `answer.test.yaml` next to `answer.prompty`, run offline from recordings or on models.

`case_file` defines the file and `reading` parses it, `plan` expands cases into trials, `trial` runs one, and `checks`
compares its observations with the expectations. `runner` runs many and keeps a ledger. Statistics, baselines and
reports work on the results alone.
Above: `cli.test`, and the pytest plugin. Below: `api`, `batches` (ledger), `rows`, `viewer` (the style of the page).
"""
