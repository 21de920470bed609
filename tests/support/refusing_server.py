"""An S3 server that refuses every request, and says all that it was told in its answer."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Refusing:
    """Where the server is, and the requests that it answered, as `HEAD /bucket/name`."""

    endpoint: str
    requests: list[str] = field(default_factory=list)


@contextmanager
def refusing_server(status: int, code: str) -> Iterator[Refusing]:
    """A server on loopback that answers with this HTTP status and S3's code for it."""

    class Handler(BaseHTTPRequestHandler):
        def _refuse(self) -> None:
            refusing.requests.append(f"{self.command} {self.path}")
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            told = "".join(f"<{name}>{value}</{name}>" for name, value in self.headers.items())
            body = f"<Error><Code>{code}</Code><Message>{code}</Message>{told}</Error>".encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        do_HEAD = do_GET = do_PUT = do_POST = do_DELETE = _refuse  # noqa: N815 - http.server's

        def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - as above
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    refusing = Refusing(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield refusing
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
