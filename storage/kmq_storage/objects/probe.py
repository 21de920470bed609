"""Probing whether a bucket creates names atomically, by races for names.

A server that ignores the condition, or that checks first and then writes, passes any test with one
request at a time. So writers race for several names, with small bodies and with the largest that a
commit can have. Then the stored bodies are read back.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass

from kmq_storage import limits, paths
from kmq_storage.environment import Environment
from kmq_storage.objects.bucket import Bucket, Put

_BODY_START = 16


@dataclass(frozen=True, slots=True)
class Race:
    """Writers that create the same names at the same moments, each with its own body."""

    names: int
    writers: int
    body_bytes: int


#: The races when a store is created: some 60 requests and 33 MB.
RACES = (Race(6, 8, 256), Race(2, 4, limits.COMMIT_OBJECT_BYTES_MAX))


@dataclass(frozen=True, slots=True)
class Proof:
    """The result of the races."""

    #: Why several writers can't share the bucket; empty when they can.
    reason: str
    #: Whether the bucket supports conditional uploads at all.
    conditional: bool
    races: tuple[Race, ...]


def probe(bucket: Bucket, environment: Environment, races: Sequence[Race]) -> Proof:
    """Race for names in the bucket, and judge the results."""
    folder = f"{paths.PROBE_FOLDER}/{environment.new_uuid().hex}"
    verdicts = [
        _race(bucket, f"{folder}/{number}-{index}", race)
        for number, race in enumerate(races)
        for index in range(race.names)
    ]
    found = next((verdict for verdict in verdicts if verdict), "")
    return Proof(found, conditional=found != _UNANSWERED, races=tuple(races))


def _race(bucket: Bucket, name: str, race: Race) -> str:
    barrier = threading.Barrier(race.writers)
    bodies = [_body(number, race.body_bytes) for number in range(race.writers)]

    def create(body: bytes) -> Put:
        barrier.wait()
        return bucket.put_if_absent(name, [body])

    with ThreadPoolExecutor(race.writers) as pool:
        outcomes = list(pool.map(create, bodies))
    stored = None
    with suppress(FileNotFoundError):
        stored = bucket.get(name, 0, _BODY_START).data.to_pybytes()
        bucket.delete(name)
    return judge(outcomes, [body[:_BODY_START] for body in bodies], stored)


def _body(number: int, length: int) -> bytes:
    return f"{number:0{_BODY_START}d}".encode().ljust(length, b".")


_UNANSWERED = "it does not answer uploads that are to create a name"


def judge(outcomes: Sequence[Put], bodies: Sequence[bytes], stored: bytes | None) -> str:
    """What is wrong with the outcomes of a race, given the stored body; empty if nothing is."""
    winners = [body for outcome, body in zip(outcomes, bodies, strict=True) if outcome is _WON]
    if len(winners) > 1:
        return f"{len(winners)} of {len(bodies)} writers that raced for a name were told they won"
    if winners and stored is None:
        return "a name that a writer was told it created is not there"
    if winners and stored != winners[0]:
        return "what the writer that won had written was overwritten"
    if not winners and (stored is None or Put.TAKEN not in outcomes):
        return _UNANSWERED
    return ""


_WON = Put.CREATED
