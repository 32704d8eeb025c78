"""A receiver of webhooks that can be well, unwell, gone or asleep."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from redrive.broker.processes import free_ports


@dataclass
class Received:
    """One request."""

    headers: dict[str, str]
    body: bytes

    @property
    def document(self) -> Any:
        return json.loads(self.body)


@dataclass
class Receiver:
    """Listens on a port of its own, while it is up."""

    port: int = field(default_factory=lambda: free_ports(1)[0])
    received: list[Received] = field(default_factory=list)
    status: int = 200
    asleep: threading.Event | None = None
    """While it is there, requests are taken and answered only once it is set."""
    _server: ThreadingHTTPServer | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"

    def up(self) -> None:
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.received.append(Received(dict(self.headers), body))
                if receiver.asleep is not None:
                    receiver.asleep.wait(240)
                self.send_response(receiver.status)
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def down(self) -> None:
        if self.asleep is not None:
            self.asleep.set()
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    @property
    def told(self) -> list[tuple[str, str]]:
        """The alerts that were taken, and what was said of each."""
        return [(each.document["alert"], each.document["status"]) for each in self.received]
