"""A small HTTP service that knows the weather: python service.py. It stands in for your own."""

import json
import os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

CELSIUS = {"Oslo": (3, "snow"), "Rome": (18, "clear")}


class Weather(BaseHTTPRequestHandler):
    """Answer GET /cities and GET /weather/CITY?unit=celsius."""

    def do_GET(self) -> None:
        """Send JSON, or 404."""
        url = urlsplit(self.path)
        city = url.path.removeprefix("/weather/")
        if url.path == "/cities":
            self._send(200, sorted(CELSIUS))
        elif city in CELSIUS:
            degrees, sky = CELSIUS[city]
            unit = parse_qs(url.query).get("unit", ["celsius"])[0]
            shown = degrees if unit == "celsius" else degrees * 9 / 5 + 32
            self._send(200, {"degrees": shown, "unit": unit, "sky": sky})
        else:
            self._send(404, {"error": f"no city {city}"})

    def _send(self, status: int, value: object) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing for a request."""


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", int(os.environ.get("PORT", "8001"))), Weather)
    print(f"listening at http://127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()
