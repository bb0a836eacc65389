"""A collector that prints the names of the spans it receives: python collector.py. It stands in for your own."""

import gzip
import os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


class Collector(BaseHTTPRequestHandler):
    """Receive OTLP over HTTP."""

    def do_POST(self) -> None:
        """Print each span with its number of attributes."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        request = ExportTraceServiceRequest.FromString(body)
        for resource in request.resource_spans:
            for scope in resource.scope_spans:
                for span in scope.spans:
                    print(f"{scope.scope.name}: {span.name}", flush=True)
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing for a request."""


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", int(os.environ.get("PORT", "4318"))), Collector)
    print(f"listening at http://127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()
