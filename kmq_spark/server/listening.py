"""The edge to the network: connections, their limits, and which requests are answered."""

from __future__ import annotations

import io
import re
import shutil
import socket
import sys
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from ipaddress import ip_address
from socketserver import TCPServer, ThreadingMixIn
from typing import Any

from kmq_spark.server.answers import Answer, answer, refused
from kmq_spark.server.view import View
from kmq_storage.environment import SYSTEM
from kmq_storage.errors import UnavailableError

#: A client is disconnected after this silence, and in any case after the time below.
_SILENCE_SECONDS = 10.0
_CONNECTION_SECONDS = 60.0
_CONNECTIONS = 100
#: Every answer has these: don't cache it, don't guess its type, don't send its address elsewhere,
#: don't let other sites load it.
_HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class Listener(ThreadingMixIn, TCPServer):
    """Answers requests at one address, each connection in a thread of its own."""

    # Not while another process listens there: that is an error still.
    allow_reuse_address = True
    request_queue_size = 64
    timeout = 0.5  # seconds between two looks whether `end` was called

    def __init__(self, host: str, port: int, view: View) -> None:
        self.view = view
        self._begun: dict[Any, float] = {}
        self._is_over = False
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
            self.address_family, address = found[0], (str(found[4][0]), port)
            super().__init__(address, _Handler)
        except (OSError, UnicodeError) as error:  # UnicodeError: no name of a host
            why = getattr(error, "strerror", None) or error
            raise UnavailableError(
                f"can't listen on host {host}, port {port}: {why}", host=host, port=port
            ) from error
        self.host, self.port = str(self.server_address[0]), self.server_address[1]
        #: The host names that a request may have; None: any. This stops DNS rebinding: a foreign
        #: page whose name was made to lead here requests that name, and could read the answers.
        self.names = names_of(self.host)

    @property
    def url(self) -> str:
        """The address of the page."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}/"

    def serve(self) -> None:
        """Answer until `end` is called."""
        while not self._is_over:
            self.handle_request()
            self._end_begun(SYSTEM.monotonic() - _CONNECTION_SECONDS)

    def end(self, *_signal: object) -> None:
        """End `serve` soon; as a signal handler, this may interrupt `serve` anywhere."""
        self._is_over = True

    def process_request(self, request: Any, client_address: Any) -> None:
        """Begin a connection, unless there are too many."""
        if len(self._begun) >= _CONNECTIONS:
            self.shutdown_request(request)
            return
        self._begun[request] = SYSTEM.monotonic()
        super().process_request(request, client_address)

    def _end_begun(self, begun_before: float) -> None:
        """End old connections: a client that sends a byte now and then would never be silent."""
        for request, begun in list(self._begun.items()):
            if begun <= begun_before:
                with suppress(OSError):
                    request.shutdown(socket.SHUT_RDWR)

    def shutdown_request(self, request: Any) -> None:
        """End a connection."""
        self._begun.pop(request, None)
        super().shutdown_request(request)

    def server_close(self) -> None:
        """Stop listening, and end every connection."""
        self._end_begun(SYSTEM.monotonic())
        super().server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Report a defect; a client that has gone isn't one."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


def names_of(host: str) -> set[str] | None:
    """Return the names of a host that only this machine reaches; None for any other host."""
    address = ip_address(host.partition("%")[0])
    if not (getattr(address, "ipv4_mapped", None) or address).is_loopback:
        return None
    return {"localhost", "127.0.0.1", "[::1]", f"[{host}]" if address.version == 6 else host}


class _Handler(BaseHTTPRequestHandler):
    """One request of one connection."""

    server: Listener
    timeout = _SILENCE_SECONDS
    default_request_version = "HTTP/1.0"  # a malformed request is answered with a status, too

    def do_GET(self) -> None:
        names, asked = self.server.names, self.headers.get_all("Host", [])
        hosts = [re.sub(r":[0-9]+$", "", each.lower()) for each in asked]  # a tunnel has its port
        if names is not None and (len(hosts) != 1 or hosts[0] not in names):
            why = f"this server is {self.server.url}, and answers under no other name"
            self._send(refused(HTTPStatus.MISDIRECTED_REQUEST, why))
            return
        try:
            found = answer(self.server.view, self.path, self.headers.get("Accept", ""))
        except Exception:
            self._send(refused(HTTPStatus.INTERNAL_SERVER_ERROR, "a defect of kmq: see its output"))
            raise
        self._send(found)

    def do_HEAD(self) -> None:
        self.do_GET()

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Refuse a malformed request, or another method than GET and HEAD."""
        if code == HTTPStatus.NOT_IMPLEMENTED:
            no_method = "use GET or HEAD: nothing can be changed here"
            self._send(refused(HTTPStatus.METHOD_NOT_ALLOWED, no_method, Allow="GET, HEAD"))
        else:
            status = HTTPStatus(code)
            self._send(refused(status, status.phrase))

    def _send(self, found: Answer) -> None:
        self.close_connection = True
        self.send_response(found.status)
        length = {"Content-Type": found.media_type, "Content-Length": str(len(found.content))}
        for name, value in (_HEADERS | length | dict(found.headers)).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            # In pieces, since the time limit is for each write.
            shutil.copyfileobj(io.BytesIO(found.content), self.wfile)

    def version_string(self) -> str:
        """Name the server without its version."""
        return "kmq"

    def log_message(self, *_told: Any) -> None:
        """Log no requests."""
