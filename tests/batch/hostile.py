"""A provider on loopback that fails in the ways of real ones, and counts for itself who was answered how often."""

import json
import random
import re
import time
from collections import Counter
from math import inf

from tests.loopback import CLOSE, Pause, Reply, Request, Server, json_reply

QUESTION = re.compile(r"question (\S+)")
USAGE = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}


class Hostile(Server):
    """Answers `question X` with `answer X`. Of all requests it refuses `busy`, breaks on `broken`, and cuts the answer
    off of `cut`; each is a share. It takes `seconds` for an answer and refuses what it cannot have at once beside
    `capacity` others. Answers that it has sent whole are in `answered`, all requests in `asked`."""

    def __init__(
        self,
        *,
        busy: float = 0.0,
        broken: float = 0.0,
        cut: float = 0.0,
        seconds: float = 0.0,
        capacity: float = inf,
        retry_after: float = 0.05,
        seed: int = 1,
    ) -> None:
        super().__init__()
        self.busy_share, self.broken_share, self.cut_share, self.seconds = busy, broken, cut, seconds
        self.capacity, self.refusal = capacity, {"retry-after": str(retry_after)}
        self.moments: list[float] = []
        self.asked: Counter[str] = Counter()
        self.answered: Counter[str] = Counter()
        self._ends: list[float] = []
        self._chance = random.Random(seed)  # noqa: S311  not for secrets

    def next_reply(self, request: Request) -> Reply:
        found = QUESTION.search(json.dumps(request.body["messages"]))
        question = found[1].rstrip('"}]') if found else ""
        self.asked[question] += 1
        self.has_changed()
        self.moments.append(now := time.monotonic())
        self._ends = [end for end in self._ends if end > now]
        chance = self._chance.random()
        if chance < self.busy_share or len(self._ends) >= self.capacity:
            return json_reply({"error": {"message": "slow down"}}, 429, self.refusal)
        if chance < self.busy_share + self.broken_share:
            return json_reply({"error": {"message": "oh"}}, 500, self.refusal)
        self._ends.append(now + self.seconds)
        answer = _answer(question)
        if chance < self.busy_share + self.broken_share + self.cut_share:
            head, body = answer
            assert isinstance(body, bytes)
            return [head, body[:40], CLOSE]
        self.answered[question] += 1
        return [Pause(self.seconds), *answer] if self.seconds else answer


def _answer(question: str) -> Reply:
    message = {"role": "assistant", "content": f"answer {question}"}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    return json_reply(
        {"id": "1", "object": "chat.completion", "model": "gpt-4o-mini", "choices": [choice], "usage": USAGE}
    )
