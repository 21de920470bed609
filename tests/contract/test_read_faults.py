"""Reading from a server that answers with other bytes, fewer or more than were asked for.

Finds wrong bytes that are taken for records, bytes that stay wrong in a cache when the server is
well again, and right ones that are refused. docs/design/bucket-commits.md has the table of all
faults that were seen, and where each is played.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import kmq_spark as kmq
from kmq_storage.objects.fsspec_bucket import FsspecBucket
from tests.support.fault_proxy import Chooser, Fault, FaultProxy, Request
from tests.support.google import GoogleFront
from tests.support.s3 import S3Server

#: Segments of more than is fetched with an object's head, a manifest page, and commits.
SEALED = [b"%03d" % n * 20_000 for n in range(40)]
VALUES = [*SEALED, *(b"%d" % n for n in range(10))]

Open = Callable[[], kmq.Store]


@pytest.fixture(params=[FaultProxy, GoogleFront], ids=["s3", "gs"])
def proxy(moto: S3Server, request: pytest.FixtureRequest) -> Iterator[FaultProxy]:
    with request.param(moto, hang_seconds=0.0) as started:
        yield started


@pytest.fixture
def open_reader(proxy: FaultProxy, tmp_path: Path) -> Open:
    """Each call another handle on a store with VALUES; all share a cache folder."""
    url, options = proxy.new_url(), proxy.options()
    with kmq.open(url, storage_options=options, maintenance=False) as store:
        store.create_topic("t")
        with store.producer() as producer:
            producer.send_batch("t", SEALED).result()
            store.seal()
            store.checkpoint()
            producer.send_batch("t", VALUES[len(SEALED) :]).result()
    options["cache_folder"] = str(tmp_path / "cache")
    return lambda: kmq.open(url, storage_options=options, read_only=True)


def _values(store: kmq.Store) -> list[bytes]:
    found: list[bytes] = store.read("t").read_all()["value"].to_pylist()
    return found


def _always(fault: Fault) -> Chooser:
    return lambda request: fault if request.ranged else None


def _once_per_object(fault: Fault) -> Chooser:
    met: set[str] = set()

    def choose(request: Request) -> Fault | None:
        if not request.ranged or request.path in met:
            return None
        met.add(request.path)
        return fault

    return choose


def test_a_range_that_is_answered_with_the_whole_object_is_cut_out_of_it(
    proxy: FaultProxy, open_reader: Open
):
    proxy.choose = _always(Fault.WHOLE)
    with open_reader() as reader:
        assert _values(reader) == VALUES
        assert reader.verify(deep=True).ok


def test_other_bytes_that_are_sent_once_are_asked_for_again(proxy: FaultProxy, open_reader: Open):
    proxy.choose = _once_per_object(Fault.OTHER_RANGE)
    with open_reader() as reader:
        assert _values(reader) == VALUES


def test_other_bytes_are_no_records_and_forgotten_when_the_server_is_well(
    proxy: FaultProxy, open_reader: Open
):
    with open_reader() as reader:
        proxy.choose = _always(Fault.OTHER_RANGE)
        for _ in range(2):
            with pytest.raises(kmq.CorruptionError):
                _values(reader)
        proxy.choose = lambda request: None
        assert _values(reader) == VALUES
    with open_reader() as later:
        assert _values(later) == VALUES


def test_other_bytes_that_are_sent_once_are_no_damage_to_verify_and_cost_no_record_in_a_repair(
    proxy: FaultProxy, open_reader: Open
):
    with open_reader() as reader:
        proxy.choose = _once_per_object(Fault.OTHER_RANGE)
        assert reader.verify(deep=True).damage == []
        url = reader.log.files.url
    with kmq.open(url, storage_options=proxy.options(), maintenance=False) as store:
        proxy.choose = _once_per_object(Fault.OTHER_RANGE)
        assert store.repair(drop_damaged=True).damage == []
        assert _values(store) == VALUES


def test_fewer_bytes_than_announced_are_an_error_that_passes(proxy: FaultProxy, open_reader: Open):
    with open_reader() as reader:
        proxy.choose = _always(Fault.SHORT)
        with pytest.raises(kmq.UnavailableError, match="bytes it announced"):
            _values(reader)
        proxy.choose = lambda request: None
        assert _values(reader) == VALUES


def test_names_that_nobody_put_change_nothing(proxy: FaultProxy, open_reader: Open):
    proxy.choose = lambda request: Fault.FOREIGN_LIST if request.is_list else None
    with open_reader() as reader:
        assert _values(reader) == VALUES


class _WholeFiles:
    """A file system that knows no ranges."""

    def cat_file(self, path: str, start: int, end: int | None) -> bytes:
        return bytes(range(100))

    def info(self, path: str) -> dict[str, int]:
        return {"size": 100}


@pytest.mark.parametrize("start", [0, 10, 95])
def test_a_place_of_fsspec_that_knows_no_ranges_gives_the_bytes_asked_for(start: int):
    bucket = FsspecBucket("whole://place", _WholeFiles(), "place", frozenset(), _no_other)
    found = bucket.get("log/x", start, 20)
    assert (found.data.to_pybytes(), found.size) == (bytes(range(100))[start : start + 20], 100)


def _no_other(url: str) -> FsspecBucket:
    raise AssertionError(url)
