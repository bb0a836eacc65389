"""Record the exchanges with models, whatever the provider."""

import os
from collections.abc import Sequence
from pathlib import Path
from threading import Lock

from prompty.model.agent import PromptAgent
from prompty.model.request import WireRequest
from prompty.providers import AsyncTransport, Provider, Tap, Transport
from prompty.providers.listening import AsyncListeningTransport, Exchange, ListeningTransport
from prompty.safety.redaction import Redactor
from prompty.testing.exchange import create_mask, encode_exchange, hide_inputs, mask_request


class Recorder(Tap):
    """Within `with Recorder(path):`, write every exchange with a model to a file when it ends.

    The first exchange replaces the file. Secrets are masked before they are written.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._started, self._lock = False, Lock()
        self._hidden = Redactor()

    def transport(self, provider: Provider, agent: PromptAgent, /) -> Transport:
        inner = provider.transport(agent)
        return ListeningTransport(inner, lambda request: self._listen(provider.key, agent, request, inner))

    def transport_async(self, provider: Provider, agent: PromptAgent, /) -> AsyncTransport:
        inner = provider.transport_async(agent)
        return AsyncListeningTransport(inner, lambda request: self._listen(provider.key, agent, request, inner))

    def _listen(self, provider: str, agent: PromptAgent, request: WireRequest, inner: object) -> Exchange:
        mask = create_mask(agent, request, self._hidden, inner)
        recorded = mask_request(provider, request, mask)
        return Exchange(lambda answer: self.append_line(encode_exchange(recorded, answer, mask)))

    def hide(self, values: Sequence[object], /) -> None:
        hide_inputs(self._hidden, values)

    def append_line(self, line: bytes) -> None:
        """Append a line to the file, which only its owner can read."""
        with self._lock:
            if not self._started:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                self.path.unlink(missing_ok=True)
                self._started = True
            descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            with os.fdopen(descriptor, "ab") as file:
                file.write(line)
