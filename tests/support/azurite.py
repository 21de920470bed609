"""Azurite, Microsoft's own emulator of Azure's blobs, in memory on loopback.

Nobody installs it for the tests: `npm install --prefix FOLDER azurite@VERSION` where
`azurite_program` looks, or anywhere on the PATH.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import shutil
import urllib.request
import uuid
from email.utils import formatdate
from pathlib import Path

from tests.support.s3 import BUCKET, S3Server, free_port

_VERSION = "3.35.0"
_API = "2021-08-06"
#: The account that every Azurite has; its key is no secret.
_ACCOUNT = "devstoreaccount1"
_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


def azurite_program() -> Path | None:
    """Where the program is, if it is there."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    kept = cache / "kmq-tests" / f"azurite-{_VERSION}" / "node_modules" / ".bin" / "azurite-blob"
    found = str(kept) if kept.exists() else shutil.which("azurite-blob")
    return Path(found) if found else None


def missing_azurite() -> str:
    """Why there is none here; empty when there is."""
    if shutil.which("node") is None:
        return "azurite needs Node"
    return "" if azurite_program() else f"azurite is not installed: npm install azurite@{_VERSION}"


class Azurite(S3Server):
    """A server in a process of its own, with one container."""

    def options(self, endpoint: str | None = None) -> dict[str, str]:
        """What a client needs."""
        place = f"{endpoint or self.endpoint}/{_ACCOUNT}"
        return {"account_name": _ACCOUNT, "account_key": _KEY, "endpoint": place}

    @staticmethod
    def new_url() -> str:
        """A place for one store."""
        return f"az://{BUCKET}/{uuid.uuid4().hex}/store"

    def make_container(self) -> None:
        """The container of all stores: a store makes none."""
        now = formatdate(usegmt=True)
        resource = f"/{_ACCOUNT}/{_ACCOUNT}/{BUCKET}\nrestype:container"
        signed = "PUT" + "\n" * 12 + f"x-ms-date:{now}\nx-ms-version:{_API}\n{resource}"
        proof = hmac.new(base64.b64decode(_KEY), signed.encode(), hashlib.sha256).digest()
        headers = {
            "x-ms-date": now,
            "x-ms-version": _API,
            "Authorization": f"SharedKey {_ACCOUNT}:{base64.b64encode(proof).decode()}",
            "Content-Length": "0",
        }
        url = f"{self.endpoint}/{_ACCOUNT}/{BUCKET}?restype=container"
        request = urllib.request.Request(url, method="PUT", headers=headers)
        urllib.request.urlopen(request, timeout=30).close()


def start_azurite() -> Azurite:
    """Everything in memory; nothing is sent to anybody."""
    port = free_port()
    where = ["--blobHost", "127.0.0.1", "--blobPort", str(port)]
    quiet = ["--silent", "--disableTelemetry", "--skipApiVersionCheck", "--inMemoryPersistence"]
    server = Azurite([str(azurite_program()), *where, *quiet], port, {})
    server.make_container()
    return server
