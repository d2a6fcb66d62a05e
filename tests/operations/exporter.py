"""What alerts ask of the NATS exporter, whose image is not to be had here, of a real server.

As the exporter does it: the series `gnatsd_varz_…` are the numbers of the server's own `/varz`, and
while the server is away there are none.
"""

from __future__ import annotations

import json
import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final

from toolrail.bus.embedded import EmbeddedNats

ASK_S: Final = 1.0
NUMBERS: Final = ("slow_consumers", "connections", "subscriptions")


class NatsExporter:
    """It can be stopped, and started again at the same port."""

    def __init__(self, bus: EmbeddedNats, port: int) -> None:
        self.port = port
        self._bus = bus
        self._server: ThreadingHTTPServer | None = None
        self._thread: threading.Thread | None = None

    def numbers(self) -> dict[str, int]:
        """Those of the server now; none while it is away."""
        try:
            with urllib.request.urlopen(
                f"{self._bus.monitoring_url}/varz", timeout=ASK_S
            ) as answer:
                said = json.load(answer)
        except (OSError, ValueError):
            return {}
        return {name: said[name] for name in NUMBERS}

    def start(self) -> None:
        """Answer from now on."""
        exporter = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                url = exporter._bus.monitoring_url
                text = "".join(
                    f'gnatsd_varz_{name}{{server_id="{url}"}} {number}\n'
                    for name, number in exporter.numbers().items()
                ).encode()
                self.send_response(200)
                self.send_header("content-type", "text/plain; version=0.0.4")
                self.send_header("content-length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (its name)
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    def stop(self) -> None:
        """Answer no more."""
        if self._server is None or self._thread is None:
            return
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        self._server = self._thread = None
