"""Records what goes over the wire, of every provider."""

import os
from collections.abc import Sequence
from pathlib import Path
from threading import Lock

from prompty.model.agent import PromptAgent
from prompty.model.request import WireRequest
from prompty.providers import AsyncTransport, Provider, Tap, Transport
from prompty.providers.listening import AsyncListeningTransport, Exchange, ListeningTransport
from prompty.safety.redaction import Redactor
from prompty.testing.exchange import asked, hide_inputs, line_of, masking


class Recorder(Tap):
    """Within `with Recorder(path):` every exchange with a model is written to a file, as soon as it is over.

    The first one replaces the file. Secrets are masked before anything is written.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._begun, self._lock = False, Lock()
        self._hidden = Redactor()

    def transport(self, provider: Provider, agent: PromptAgent, /) -> Transport:
        inner = provider.transport(agent)
        return ListeningTransport(inner, lambda request: self._listen(provider.key, agent, request, inner))

    def transport_async(self, provider: Provider, agent: PromptAgent, /) -> AsyncTransport:
        inner = provider.transport_async(agent)
        return AsyncListeningTransport(inner, lambda request: self._listen(provider.key, agent, request, inner))

    def _listen(self, provider: str, agent: PromptAgent, request: WireRequest, inner: object) -> Exchange:
        mask = masking(agent, request, self._hidden, inner)
        question = asked(provider, request, mask)
        return Exchange(lambda answer: self.keep(line_of(question, answer, mask)))

    def hide(self, values: Sequence[object], /) -> None:
        hide_inputs(self._hidden, values)

    def keep(self, line: bytes) -> None:
        """Write a line at the end of the file, which nobody else may read."""
        with self._lock:
            if not self._begun:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                self.path.unlink(missing_ok=True)
                self._begun = True
            descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            with os.fdopen(descriptor, "ab") as file:
                file.write(line)
