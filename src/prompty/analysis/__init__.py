"""Static analysis of prompts, without calling a model.

`check` lists the problems of a file, `explain` builds the request that a prompt would send. The package is not called
`check`: `prompty.check` is a public function, and a submodule of the same name would replace it, or be replaced by it,
depending on which is imported first.
"""
