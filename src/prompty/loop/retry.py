"""The one owner of retries: every call to a model goes through here, and the SDKs' own retries are off (L8)."""

from itertools import count

from prompty.errors import ModelError
from prompty.loop.effects import CallModel, Emit, Loop, Wait
from prompty.model.event import ModelReply, Retry
from prompty.model.reply import Reply
from prompty.model.request import WireRequest

FIRST_WAIT = 0.5
LONGEST_WAIT = 8.0
LONGEST_ASKED_WAIT = 60.0


def call_model(request: WireRequest, max_retries: int, model: int = 0) -> Loop[Reply]:
    """Call a model, again where that may help: never after a permanent error, nor after words already went out."""
    for attempt in count(1):
        try:
            reply = yield from CallModel(request, model)
        except ModelError as error:
            if not error.retryable or attempt > max_retries:
                raise
            failure = error
        else:
            yield from Emit(ModelReply(reply))
            return reply
        seconds = wait_after(failure, attempt)
        yield from Emit(Retry(attempt, seconds, str(failure), failure.status, failure.retry_after))
        try:
            yield from Wait(seconds)
        except ModelError:
            raise failure from None  # there is no time to wait: why one would have to says more
    raise AssertionError("unreachable")


def wait_after(error: ModelError, attempt: int) -> float:
    """As long as the server asked for, within reason; else twice as long each time."""
    if error.retry_after is not None:
        return min(error.retry_after, LONGEST_ASKED_WAIT)
    return min(FIRST_WAIT * float(2 ** (attempt - 1)), LONGEST_WAIT)
