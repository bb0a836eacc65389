"""A process that resumes turns: a scene, a paused turn and verdicts per line come in, what ran goes out."""

import json
import sys
from typing import Any

from prompty import Paused, resume
from prompty.testing import Script
from tests.conversations.policies import Parameter, Scene


def read_scene(value: dict[str, Any]) -> Scene:
    return Scene(**{**value, "parameters": [Parameter(**one) for one in value["parameters"]]})


def main() -> None:
    for line in sys.stdin:
        value = json.loads(line)
        scene, ran = read_scene(value["scene"]), list[dict[str, Any]]()
        options: dict[str, Any] = {"tools": [scene.tool(ran)], "guardrails": scene.guardrails()}
        with Script("Done."):
            result = resume(scene.agent(), Paused.from_json(value["paused"]), value["verdicts"], **options)
        sys.stdout.write(json.dumps({"ran": ran, "result": result}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
