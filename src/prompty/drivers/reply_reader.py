"""Parse the bytes of a streamed answer into deltas and a reply. Pure, so sync and async code share it."""

from collections.abc import Iterator

from prompty.errors import ModelError, Refused, StreamCut
from prompty.model.event import Delta
from prompty.model.reply import Reply
from prompty.wire.json_bytes import MALFORMED, as_object, malformed
from prompty.wire.stream import Decoder, EventReader


class ReplyReader:
    """Reads a streamed answer: `feed` the chunks, `finish`, then take the `reply`. On any error, raise `cut(error)`."""

    def __init__(self, decoder: Decoder) -> None:
        self._events, self._decoder = EventReader(), decoder
        self._has_deltas = False

    def feed(self, chunk: bytes) -> Iterator[Delta]:
        for event in self._events.feed(chunk):
            for delta in self._decoder.feed(event):
                self._has_deltas = True
                yield delta

    def feed_chunk(self, chunk: object) -> Iterator[Delta]:
        """Yield the deltas of a chunk that is already JSON, or an SDK object."""
        for delta in self._decoder.feed(as_object(chunk)):
            self._has_deltas = True
            yield delta

    def finish(self) -> Iterator[Delta]:
        """Yield the deltas of the last event, which may lack its final newline."""
        for event in self._events.finish():
            for delta in self._decoder.feed(event):
                self._has_deltas = True
                yield delta

    def reply(self) -> Reply:
        """Return the complete reply, or raise StreamCut.

        Some servers send no finish reason. Then text is complete at the end mark, but a call may not be (P3).
        """
        try:
            return self._decoder.finish()
        except StreamCut as error:
            partial = error.partial
            if self._events.is_done and isinstance(partial, Reply) and partial.text and not partial.tool_calls:
                return partial
            raise

    def cut(self, error: Exception) -> ModelError:
        """Return the error of an interrupted stream, with the partial reply. After the first delta it is not retryable:
        the reader would see the same text twice."""
        return cut_error(error, self._decoder, self._has_deltas)


def cut_error(error: Exception, decoder: Decoder, has_deltas: bool) -> ModelError:
    failure = error if isinstance(error, ModelError) else malformed(error)
    if isinstance(failure, Refused):
        return failure
    partial = failure.partial if isinstance(failure, StreamCut) else _partial_reply(decoder)
    return StreamCut(failure.cause, partial, retryable=failure.retryable and not has_deltas)


def _partial_reply(decoder: Decoder) -> object:
    try:
        return decoder.finish()
    except StreamCut as error:
        return error.partial
    except (ModelError, *MALFORMED):
        return None
