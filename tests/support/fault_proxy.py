"""A proxy before a good S3 server that does what bad ones and bad networks were seen to do."""

from __future__ import annotations

import http.client
import random
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar, Self
from urllib.parse import parse_qs, unquote, urlsplit

from tests.support.s3 import S3Server


class Fault(Enum):
    """What happens to one request instead of being passed on."""

    IGNORE_CONDITION = "the header If-None-Match is dropped"
    CHECK_THEN_WRITE = "the name is looked up first, and written a moment later"
    REFUSE_501 = "501, nothing written"
    CONFLICT_409 = "409, nothing written"
    UNAVAILABLE_503 = "503, nothing written"
    UNAVAILABLE_AFTER = "written, then 503"
    RESET_BEFORE = "the connection is reset, nothing written"
    RESET_AFTER = "written, then the connection is reset"
    HANG_AFTER = "written, and no answer comes"
    LATE = "no answer comes, and it is written after the client gave up"
    LOST = "200, nothing written"
    STALE_404 = "404 for an object that is there"
    STALE_LIST = "an old list"
    FOREIGN_LIST = "a list with names that nobody put, some of them torn"
    WHOLE = "200 and the whole body for a range"
    OTHER_RANGE = "other bytes of the object, said to be those that were asked for"
    SHORT = "fewer bytes than the range that is announced"


#: Those after which a writer can't know what happened, and a correct one must not care.
DOUBTFUL = (
    Fault.CONFLICT_409,
    Fault.UNAVAILABLE_503,
    Fault.UNAVAILABLE_AFTER,
    Fault.RESET_BEFORE,
    Fault.RESET_AFTER,
    Fault.HANG_AFTER,
    Fault.LATE,
)


@dataclass(frozen=True, slots=True)
class Request:
    """A request as the proxy saw it."""

    method: str
    #: Of the object, or the prefix that is listed; below the bucket.
    path: str
    is_list: bool
    #: Whether it creates an object only if it is absent.
    conditional: bool
    #: Whether only a part of an object is asked for.
    ranged: bool = False


#: Less than after which a client gives up that is not told to do so earlier.
_MEETING_SECONDS = 20.0

Chooser = Callable[[Request], Fault | None]


def sometimes(fault: Fault, share: float, *, seed: int = 0) -> Chooser:
    """The fault for a share of the conditional uploads of commits."""
    rng = random.Random(seed)

    def choose(request: Request) -> Fault | None:
        hit = request.conditional and "/log/" in request.path and rng.random() < share
        return fault if hit else None

    return choose


class Meeting:
    """No fault, but requests for paths that contain a text wait for one another.

    The first ones may go on alone. The others do when so many are there: however slow they are,
    they meet if they are made at once, and never if they are made one by one.
    """

    def __init__(self, below: str, count: int, *, alone: int = 0) -> None:
        self._below, self._count, self._alone = below, count, alone
        self._come = threading.Condition()
        self._there, self.failed = 0, False

    def __call__(self, request: Request) -> None:
        if self._below not in request.path:
            return
        with self._come:
            self._there += 1
            self._come.notify_all()
            if self._there > self._alone:
                self.failed |= not self._come.wait_for(self._is_over, _MEETING_SECONDS)

    def _is_over(self) -> bool:
        return self.failed or self._there >= self._alone + self._count


class Handler(BaseHTTPRequestHandler):
    """Passes a request on, or plays a fault."""

    proxy: ClassVar[FaultProxy]
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._handle()

    def do_PUT(self) -> None:
        self._handle()

    def do_HEAD(self) -> None:
        self._handle()

    def do_DELETE(self) -> None:
        self._handle()

    def do_POST(self) -> None:
        self._handle()

    def log_message(self, *args: Any) -> None:
        pass

    def _handle(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        request = self._request()
        self.proxy.requests.append(request)
        if self.proxy.delay:
            time.sleep(self.proxy.delay)
        fault = self.proxy.choose(request)
        if fault is None:
            self._pass_on(request, body)
        else:
            self._play(fault, request, body)

    def _request(self) -> Request:
        parts = urlsplit(self.path)
        prefix = parse_qs(parts.query).get("prefix", [""])[0]
        is_list = self.command == "GET" and "list-type" in parts.query
        path = prefix if is_list else unquote(parts.path)
        conditional, ranged = "If-None-Match" in self.headers, "Range" in self.headers
        return Request(self.command, path, is_list, conditional, ranged)

    def _pass_on(self, request: Request, body: bytes) -> None:
        answer = self._forward(body)
        if request.is_list:
            self.proxy.old_lists.setdefault(self.path, answer)
        self.answer(*answer)

    def _play(self, fault: Fault, request: Request, body: bytes) -> None:
        match fault:
            case Fault.IGNORE_CONDITION:
                self.answer(*self._forward(body, drop="if-none-match"))
            case Fault.CHECK_THEN_WRITE:
                taken = self._forward(b"", method="HEAD")[0] == 200
                time.sleep(0.02)
                self.answer(*((412, [], b"") if taken else self._forward(body, "if-none-match")))
            case Fault.REFUSE_501 | Fault.CONFLICT_409 | Fault.UNAVAILABLE_503:
                self.answer(int(fault.name[-3:]), [], b"")
            case Fault.UNAVAILABLE_AFTER:
                self._forward(body)
                self.answer(503, [], b"")
            case Fault.RESET_BEFORE:
                self._reset()
            case Fault.RESET_AFTER:
                self._forward(body)
                self._reset()
            case Fault.HANG_AFTER:
                self._forward(body)
                self._hang()
            case Fault.LATE:
                self._hang()
                self._forward(body)
            case Fault.LOST:
                self.answer(200, [("ETag", '"0"')], b"")
            case Fault.STALE_404:
                self.answer(404, [], b"")
            case Fault.STALE_LIST:
                self.answer(*self.proxy.old_lists.get(self.path, (200, [], _EMPTY_LIST)))
            case Fault.FOREIGN_LIST:
                status, headers, found = self._forward(body)
                self.answer(status, headers, _with_foreign_names(found, request.path))
            case Fault.WHOLE:
                self.answer(*self._forward(body, drop="range"))
            case Fault.OTHER_RANGE:
                status, headers, part = self._forward(body)
                whole = self._forward(body, drop="range")[2]
                self.answer(status, headers, (whole[1:] + whole)[: len(part)])
            case Fault.SHORT:
                status, headers, part = self._forward(body)
                self.answer(status, headers, part[: len(part) // 2])

    def _forward(
        self, body: bytes, drop: str = "", method: str = ""
    ) -> tuple[int, list[tuple[str, str]], bytes]:
        """What the good server answers; one that is busy may be asked again what it has."""
        answer: tuple[int, list[tuple[str, str]], bytes] = (502, [], b"")
        for _ in range(3 if (method or self.command) in ("GET", "HEAD") else 1):
            with suppress(OSError, http.client.HTTPException):
                answer = self._answer(body, drop, method)
                if answer[0] < 500:
                    break
        return answer

    def _answer(
        self, body: bytes, drop: str, method: str
    ) -> tuple[int, list[tuple[str, str]], bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.proxy.server.port, timeout=30)
        skipped = {drop, "connection", *(("content-length",) if method else ())}
        headers = {k: v for k, v in self.headers.items() if k.lower() not in skipped}
        try:
            connection.request(method or self.command, self.path, body, headers)
            answer = connection.getresponse()
            return answer.status, answer.getheaders(), answer.read()
        finally:
            connection.close()

    def answer(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
        """Send an answer."""
        self.send_response_only(status)
        skipped = ("transfer-encoding", "connection", "keep-alive", "content-length")
        length = str(len(body))
        for name, value in headers:
            if name.lower() == "content-length" and self.command == "HEAD":
                length = value
            elif name.lower() not in skipped:
                self.send_header(name, value)
        self.send_header("Content-Length", length)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _reset(self) -> None:
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        self.close_connection = True
        self.rfile.close()
        self.wfile.close()
        self.connection.close()

    def _hang(self) -> None:
        time.sleep(self.proxy.hang_seconds)
        self._reset()


class FaultProxy:
    """Listens on a port of its own; `choose` says what to do with a request."""

    #: Who handles a request.
    handler: ClassVar[type[Handler]] = Handler

    def __init__(self, server: S3Server, *, hang_seconds: float = 1.0, delay: float = 0.0) -> None:
        self.server = server
        self.choose: Chooser = lambda request: None
        self.hang_seconds = hang_seconds
        #: Seconds that every request takes more.
        self.delay = delay
        self.requests: list[Request] = []
        self.old_lists: dict[str, tuple[int, list[tuple[str, str]], bytes]] = {}
        handler = type("Handler", (self.handler,), {"proxy": self})
        self._listener = _Listener(("127.0.0.1", 0), handler)
        self._thread = threading.Thread(target=self._listener.serve_forever, daemon=True)
        self._thread.start()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._listener.server_address[1]}"

    def options(self) -> dict[str, Any]:
        """What a client needs to come by this proxy; it gives up on a request early."""
        client = {"timeout": f"{round(self.hang_seconds * 500) or 30_000}ms"}
        return {**self.server.options(self.endpoint), "client_options": client}

    def new_url(self) -> str:
        """A place for one store."""
        return self.server.new_url()

    def count(self, method: str, *, below: str = "") -> int:
        """How many requests of a kind there were for paths that contain a text."""
        return sum(each.method == method and below in each.path for each in self.requests)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown()
        self._listener.server_close()


class _Listener(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass  # a client that gave up


_EMPTY_LIST = b"""<?xml version="1.0"?><ListBucketResult><Name>b</Name><Prefix></Prefix>
<KeyCount>0</KeyCount><MaxKeys>1000</MaxKeys><IsTruncated>false</IsTruncated></ListBucketResult>"""


def _with_foreign_names(listed: bytes, folder: str) -> bytes:
    """A list with the temporary files of a server among the objects."""
    names = [f"{folder.rstrip('/')}/{name}" for name in (".tmp-1", "00000000.part", "x.kmq~", "0")]
    when = "<LastModified>2026-01-01T00:00:00Z</LastModified><Size>3</Size>"
    added = "".join(f"<Contents><Key>{name}</Key>{when}</Contents>" for name in names)
    return listed.replace(b"</ListBucketResult>", f"{added}</ListBucketResult>".encode())
