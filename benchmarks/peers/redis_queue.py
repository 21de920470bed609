"""A queue in a stream of Redis with one group of consumers: a peer of kmq's."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self

_STREAM, _GROUP = "queue", "workers"
#: Seconds until the server has to answer.
_START_SECONDS = 30.0


class RedisQueue:
    """Put, receive and acknowledge, each call in one round trip; a context manager.

    The server is one of its own, on a Unix socket. It writes each call to its append-only file.
    """

    def __init__(self, folder: Path, *, durable: bool) -> None:
        if shutil.which("redis-server") is None or find_spec("redis") is None:
            raise RuntimeError("Redis is missing: apt install redis-server, pip install redis")
        import redis

        socket = str(folder / "redis.sock")
        options = {
            "--port": "0",
            "--unixsocket": socket,
            "--dir": str(folder),
            "--save": "",
            "--appendonly": "yes",
            "--appendfsync": "always" if durable else "no",
        }
        words = [word for option in options.items() for word in option]
        self._server = subprocess.Popen(["redis-server", *words], stdout=subprocess.DEVNULL)
        self._client: Any = redis.Redis(unix_socket_path=socket)
        try:
            self._wait(redis.ConnectionError)
            self._client.xgroup_create(_STREAM, _GROUP, id="0", mkstream=True)
        except BaseException:
            self.close()
            raise

    def _wait(self, refused: type[Exception]) -> None:
        end = time.monotonic() + _START_SECONDS
        while True:
            try:
                self._client.ping()
                return
            except refused:
                if time.monotonic() > end:
                    raise
                time.sleep(0.01)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the server."""
        self._client.close()
        self._server.kill()
        self._server.wait()

    def put(self, values: Sequence[bytes]) -> None:
        """Store records."""
        with self._client.pipeline(transaction=False) as pipeline:
            for value in values:
                pipeline.xadd(_STREAM, {"value": value})
            pipeline.execute()

    def receive(self, most: int) -> list[tuple[bytes, bytes]]:
        """Ids and values of records that nobody else gets meanwhile."""
        found = self._client.xreadgroup(_GROUP, "one", {_STREAM: ">"}, count=most)
        return [(number, fields[b"value"]) for _, entries in found for number, fields in entries]

    def ack(self, ids: Sequence[bytes]) -> None:
        """These are done, and gone from the stream."""
        with self._client.pipeline(transaction=True) as pipeline:
            pipeline.xack(_STREAM, _GROUP, *ids)
            pipeline.xdel(_STREAM, *ids)
            pipeline.execute()
