"""Real S3 servers on loopback: moto, which is quick, and versitygw, which survives a kill."""

from __future__ import annotations

import os
import random
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
import uuid
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

BUCKET = "kmq-tests"
_ACCESS_KEY, _SECRET_KEY = "kmq-tests-key", "kmq-tests-secret-0123456789"
_VERSITYGW = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"
_START_SECONDS = 120.0


class S3Server:
    """A server in a process of its own, with one bucket."""

    def __init__(self, command: list[str], port: int, environment: Mapping[str, str]) -> None:
        self._command = command
        self._environment = {**os.environ, **environment}
        self.port = port
        self.process = self._start()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def options(self, endpoint: str | None = None) -> dict[str, str]:
        """What a client needs, by way of a proxy if its endpoint is given."""
        return {
            "access_key_id": _ACCESS_KEY,
            "secret_access_key": _SECRET_KEY,
            "region": "us-east-1",
            "endpoint": endpoint or self.endpoint,
        }

    def s3fs_options(self) -> dict[str, str]:
        """The same under the names of s3fs."""
        return {"key": _ACCESS_KEY, "secret": _SECRET_KEY, "endpoint_url": self.endpoint}

    def environment(self) -> dict[str, str]:
        """The same for a client that reads the usual environment variables."""
        return {
            "AWS_ACCESS_KEY_ID": _ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": _SECRET_KEY,
            "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": self.endpoint,
        }

    @staticmethod
    def new_url() -> str:
        """A place for one store."""
        return f"s3://{BUCKET}/{uuid.uuid4().hex}/store"

    def _start(self) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            self._command,
            env=self._environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return process
            assert process.poll() is None, f"{self._command} ended with {process.returncode}"
            time.sleep(0.02)
        raise TimeoutError(f"{self._command} did not start")

    def kill(self) -> None:
        """End the server as `kill -9` does."""
        self.process.kill()
        self.process.wait()

    def restart(self) -> None:
        """Start it again at the same port, with what it has on disk."""
        self.process = self._start()


def free_port() -> int:
    """A port that nobody listens on, and that nobody is given who asks for any.

    A server takes seconds to listen there: of those that the system gives, another process may get
    the same meanwhile.
    """
    first, last = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    others = [*range(1024, first), *range(last + 1, 65_536)] or range(first, last + 1)
    while True:
        port = random.SystemRandom().choice(others)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def start_moto() -> S3Server:
    """The quick one: everything in memory, atomic up to bodies of 4 MB."""
    port = free_port()
    program = str(Path(__file__).with_name("moto_server.py"))
    command = [sys.executable, program, "-H", "127.0.0.1", "-p", str(port)]
    server = S3Server(command, port, {})
    request = urllib.request.Request(f"{server.endpoint}/{BUCKET}", method="PUT")
    urllib.request.urlopen(request, timeout=_START_SECONDS).close()
    return server


def start_versitygw(folder: Path) -> S3Server:
    """The real one: objects are files, and what it answered for is on disk."""
    (folder / BUCKET).mkdir(parents=True)
    port = free_port()
    program = str(versitygw_program())
    where = ["--port", f"127.0.0.1:{port}", "--region", "us-east-1", "posix", str(folder)]
    keys = {"ROOT_ACCESS_KEY": _ACCESS_KEY, "ROOT_SECRET_KEY": _SECRET_KEY}
    return S3Server([program, *where], port, keys)


def versitygw_program() -> Path:
    """Where the program is, or will be once it is built: it takes minutes, so it is kept."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    return cache / "kmq-tests" / f"versitygw-{_VERSITYGW.rpartition('@')[2]}"


def build_versitygw() -> subprocess.Popen[bytes] | None:
    """Begin to build the program in the background; None when there is nothing to do."""
    target = versitygw_program()
    if target.exists() or shutil.which("go") is None:
        return None
    target.parent.mkdir(parents=True, exist_ok=True)
    script = (  # of the processes that share a run of the tests one builds, and the others wait
        'exec 9> "$1.lock" && flock 9 && if [ -e "$1" ]; then exit; fi; '
        'folder=$(mktemp -d "$1.XXXX") && GOBIN="$folder" CGO_ENABLED=0 nice -n 19 go install '
        '"$2" && mv "$folder/versitygw" "$1" && rmdir "$folder"'
    )
    return subprocess.Popen(
        ["sh", "-c", script, "build", str(target), _VERSITYGW],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def missing_versitygw(build: subprocess.Popen[bytes] | None) -> str:
    """Why the program is not there once its build ended; empty when it is."""
    if build is not None:
        build.wait(timeout=600)
    if versitygw_program().exists():
        return ""
    if shutil.which("go") is None:
        return "versitygw is not there, and there is no Go to build it"
    return f"versitygw could not be built: go install {_VERSITYGW}"
