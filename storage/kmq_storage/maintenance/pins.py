"""Pins, with which a long reader keeps the files of an LSN from being collected for a while."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass

from kmq_storage import paths
from kmq_storage.format.json_bytes import decode_members, encode_members
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.disk_errors import translated
from kmq_storage.objects.files import Files


@dataclass(frozen=True, slots=True)
class Pin:
    """An LSN whose files are kept until a time."""

    lsn: int
    #: UTC microseconds by the store's clock.
    expires: int


def encode_pin(pin: Pin) -> bytes:
    """The JSON of a pin, with a checksum over its other members."""
    return encode_members(asdict(pin))


def decode_pin(raw: bytes) -> Pin | None:
    """The pin in a file; None when it is damaged."""
    members = decode_members(raw, ("lsn", "expires"))
    return None if members is None else Pin(**members)


@contextmanager
def pinned(log: CommitLog, lsn: int, seconds: float) -> Iterator[None]:
    """Keep the files of the state at an LSN during the block, at most for some seconds."""
    pin_id = log.environment.new_uuid().bytes
    file = paths.pin_file(pin_id)
    with translated(log.files.url):
        expires = log.files.now() + round(seconds * 1e6)
        log.files.publish(file, [encode_pin(Pin(lsn, expires))], sync=True)
    try:
        yield
    finally:
        with translated(log.files.url):
            log.files.remove(file)


def pinned_lsn(files: Files, now: int, expire: Callable[[str], None]) -> int | None:
    """The lowest pinned LSN at this time (UTC us); `expire` is called for expired pins."""
    lsns = []
    for file, pin in pins(files):
        if pin is not None and pin.expires < now:
            expire(file)
        elif pin is not None:
            lsns.append(pin.lsn)
    return min(lsns, default=None)


def pins(files: Files) -> Iterator[tuple[str, Pin | None]]:
    """The file of each pin, and the pin; None for a damaged one."""
    for file in filter(paths.is_pin, (found.path for found in files.walk(paths.PIN_FOLDER))):
        with suppress(FileNotFoundError):  # removed meanwhile
            yield file, decode_pin(files.read(file))
