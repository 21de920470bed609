"""moto's server, in which a name is created once: it looks and then writes, here one at a time.

Threads that change in between are told both that they won. On a busy machine the race at the
creation of a store finds that out now and then, and rightly leaves the store one writer.
"""

from __future__ import annotations

import threading
from typing import Any

from moto.s3.responses import S3Response
from moto.server import main

_put_object = S3Response.put_object
_one_at_a_time = threading.Lock()


def _look_and_put(response: S3Response) -> Any:
    with _one_at_a_time:
        return _put_object(response)


if __name__ == "__main__":
    S3Response.put_object = _look_and_put  # type: ignore[method-assign]
    main()
