"""Processes that are killed at a step of their choice."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any

#: The calls of a commit that change what other processes find: files, the hint page, locks.
_CHANGES = {"try_acquire", "allocate", "write_at", "write_all", "store", "sync", "wake", "release"}

#: The same in a bucket: it may do what it was asked to without anybody hearing the answer.
_REQUESTS = {"put", "put_if_absent", "delete"}
_STEPS = {*((name, "call") for name in _CHANGES | _REQUESTS), *((n, "return") for n in _REQUESTS)}

#: Nobody may fork beside the threads of a bucket's client: children come from another process.
_SERVER = multiprocessing.get_context("forkserver")
_SERVER.set_forkserver_preload(["kmq_spark.datasource.source"])
_FORK = multiprocessing.get_context("fork")


def killed_at(step: int, action: Callable[..., None], url: str, *arguments: object) -> bool:
    """Run this on a store in a child that is killed when it comes to its n-th change."""
    start = _SERVER.Process if url.startswith("s3:") else _FORK.Process
    child = start(target=_dying, args=(step, dict(os.environ), action, (url, *arguments)))
    child.start()
    child.join()
    assert child.exitcode in (0, -signal.SIGKILL), "the commit failed"
    return child.exitcode != 0


def _dying(
    step: int, environment: Mapping[str, str], action: Callable[..., None], arguments: Any
) -> None:
    os.environ.update(environment)
    left = step

    def look(frame: FrameType, event: str, _: Any) -> None:
        nonlocal left
        code = frame.f_code
        if (code.co_name, event) in _STEPS and "/kmq_storage/objects/" in code.co_filename:
            left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.setprofile(look)
    action(*arguments)
    sys.setprofile(None)
