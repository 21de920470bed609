"""`kmq serve`: shows a store over HTTP, and changes nothing: a page, tables and metrics."""

from __future__ import annotations

import os
import signal
from argparse import ArgumentTypeError, Namespace
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from types import FrameType

from kmq_spark.cli.command import Command, argument, count
from kmq_spark.cli.opening import open_store
from kmq_spark.cli.output import Output


def _port(text: str) -> int:
    if (number := count(text)) > 65_535:
        raise ArgumentTypeError(f"must be 65535 or less, not {text}")
    return number


def _serve(arguments: Namespace, output: Output) -> None:
    from kmq_spark.server.listening import Listener  # imported when needed: it takes time
    from kmq_spark.server.view import View

    with (
        _signals(signal.default_int_handler),
        suppress(KeyboardInterrupt),
        closing(View(lambda: open_store(arguments, read_only=True))) as view,
    ):
        url = view.seen().url  # an error of the store is raised now
        with Listener(arguments.host, arguments.port, view) as listener:
            where = {"url": listener.url, "host": listener.host, "port": listener.port}
            output.stream(where, os.fsencode(f"{listener.url} shows {url}; Ctrl-C ends it"))
            output.flush()
            with _signals(listener.end):  # an exception could come in the middle of anything
                listener.serve()


@contextmanager
def _signals(handler: Callable[[int, FrameType | None], object]) -> Iterator[None]:
    """Set a handler for Ctrl-C and SIGTERM during the block."""
    before = {each: signal.signal(each, handler) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for each, was in before.items():
            signal.signal(each, was)


COMMANDS = (
    Command(
        "serve",
        "show the store over HTTP: a page, tables, metrics for Prometheus; nothing is changed",
        _serve,
        (
            argument("--host", default="127.0.0.1", help="the address to listen on (127.0.0.1)"),
            argument(
                "--port",
                type=_port,
                default=8765,
                help="the port to listen on (8765); 0: any free one",
            ),
        ),
    ),
)
