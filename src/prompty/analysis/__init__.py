"""Static analysis of prompts, without calling a model.

`check` lists the problems of a file, `explain` builds the request that a prompt would send. The package is not named
`check`, because a submodule would clash with the public function `prompty.check`.
"""
