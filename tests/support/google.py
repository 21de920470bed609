"""Google's XML interface in front of an S3 server: the same requests under Google's names.

No emulator of Google's that can be installed here takes what obstore sends. What differs from S3
is translated, by Google's reference of the XML interface: a condition on the generation instead
of on the entity tag, a generation in each answer, and slashes of a name that come encoded.
"""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote, unquote

from tests.support.fault_proxy import FaultProxy, Handler

#: In place of a token, which says nothing to S3; moto looks at the key's name only.
_SIGNATURE = (
    "AWS4-HMAC-SHA256 Credential=any/20260101/us-east-1/s3/aws4_request, "
    "SignedHeaders=host, Signature=0"
)


class _GoogleHandler(Handler):
    def parse_request(self) -> bool:
        """Read the request as an S3 client would have sent it."""
        parsed = super().parse_request()
        if parsed:
            path, mark, query = self.path.partition("?")
            self.path = quote(unquote(path)) + mark + query
            if self.headers.get("x-goog-if-generation-match") == "0":
                self.headers["If-None-Match"] = "*"
            del self.headers["x-goog-if-generation-match"]
            del self.headers["Authorization"]
            self.headers["Authorization"] = _SIGNATURE
        return parsed

    def answer(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
        super().answer(status, [*headers, ("x-goog-generation", "1")], body)


class GoogleFront(FaultProxy):
    """Listens on a port of its own, and plays the faults of a `FaultProxy` too."""

    handler = _GoogleHandler

    def options(self) -> dict[str, Any]:
        """What a client needs: an account that asks nobody for a token, and this server."""
        account = {
            "gcs_base_url": self.endpoint,
            "disable_oauth": True,
            "client_email": "",
            "private_key": "",
            "private_key_id": "",
        }
        client = {**super().options()["client_options"], "allow_http": True}
        return {"service_account_key": json.dumps(account), "client_options": client}

    def new_url(self) -> str:
        """A place for one store."""
        return super().new_url().replace("s3://", "gs://")
