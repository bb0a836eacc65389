"""A server that answers over TLS, with control over the records."""

import ssl
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from socket import create_server, socket
from threading import Thread

from tests.drivers.clients import close_clients
from tests.internet import Internet


@contextmanager
def serve_tls(folder: Path, answers: Sequence[Sequence[bytes]]) -> Iterator[tuple[str, Path, list[int]]]:
    """Answer over TLS. The pieces of an answer are records of their own, and all are sent at once. Yield the URL, the
    certificate, and the number of requests of each connection."""
    internet = Internet(folder, ["localhost"], None)
    internet._server.server_close()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(internet.certificate)
    remaining, requests = list(answers), list[int]()

    def serve(listening: socket) -> None:
        with suppress(OSError):
            while True:
                plain = listening.accept()[0]
                requests.append(0)
                with plain, suppress(OSError):
                    converse(plain)

    def converse(plain: socket) -> None:
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = context.wrap_bio(incoming, outgoing, server_side=True)

        def perform(step: Callable[[], bytes | None]) -> bytes | None:
            while True:
                try:
                    done = step()
                except ssl.SSLWantReadError:
                    plain.sendall(outgoing.read())
                    if not (data := plain.recv(65536)):
                        raise ConnectionError from None
                    incoming.write(data)
                else:
                    plain.sendall(outgoing.read())
                    return done

        perform(tls.do_handshake)
        while True:
            request = b""
            while b"\r\n\r\n" not in request or not request.endswith(b"}"):
                request += perform(lambda: tls.read(65536)) or b""
            requests[-1] += 1
            for record in remaining.pop(0) if len(remaining) > 1 else remaining[0]:
                for start in range(0, len(record), 16_000):
                    tls.write(record[start : start + 16_000])
            plain.sendall(outgoing.read())

    with closing(create_server(("127.0.0.1", 0))) as listening:
        Thread(target=serve, args=(listening,), daemon=True).start()
        yield f"https://localhost:{listening.getsockname()[1]}", internet.certificate, requests
        close_clients()
