"""Finds batches that are stored twice or not at all: replays, dead drivers, aborts, twin tasks."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, StringType, StructType

from kmq_spark.datasource.executor.writing import write_task
from kmq_spark.datasource.opening import open_log
from kmq_spark.datasource.options.sink_options import SinkOptions, parse_sink_options
from kmq_spark.datasource.sink import checkpoint
from kmq_spark.datasource.sink.commit import commit_written
from kmq_spark.datasource.sink.sink import Written, open_sink
from kmq_spark.datasource.source import KmqDataSource
from kmq_spark.datasource.warning import warn_once
from kmq_spark.datasource.writer import KmqBatchWriter, KmqStreamWriter
from kmq_storage.environment import SYSTEM
from kmq_storage.errors import InvalidRequestError
from kmq_storage.format.entries import BatchIdEntry, GroupOffsetsEntry, encode_entry
from kmq_storage.log.store_files import open_identity
from kmq_storage.objects.local import LocalDisk
from tests.spark.shop import Shop
from tests.unit.datasource.dying import killed_at

#: More than a task sends to the driver instead of staging it.
LARGE = [b"%d" % n * 200 for n in range(1_000)]


@pytest.fixture(params=["local", "s3"])
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shop]:
    s3 = request.param == "s3"
    made = Shop(request.getfixturevalue("s3_url") if s3 else tmp_path / "shop")
    made.create("orders", 1)
    yield made
    made.close()


def _task(shop: Shop, *values: bytes, query: str | None = None, task: int = 0) -> Written:
    sink = open_sink(SinkOptions(url=shop.url, topic="orders"))
    batch = pa.RecordBatch.from_pydict({"value": pa.array(values)})
    return pickle.loads(pickle.dumps(write_task(sink, [batch], task=task, query=query)))


def _commit_batch(shop: Shop, number: int, *messages: Written | None) -> None:
    _drive(shop.url, number, *messages)


def _drive(url: str, number: int, *messages: Written | None) -> None:
    writer = KmqStreamWriter(open_sink(SinkOptions(url=url, topic="orders")))
    writer.commit(list(messages), number)


def _save(shop: Shop, values: Iterable[bytes], **options: str) -> bool:
    """Write a batch as Spark does; whether its rows were looked at."""
    looked = False

    def rows() -> Iterator[pa.RecordBatch]:
        nonlocal looked
        looked = True
        yield pa.RecordBatch.from_pydict({"value": pa.array(list(values), pa.binary())})

    source = KmqDataSource({"path": shop.url, "topic": "orders", **options})
    writer = source.writer(StructType().add("value", BinaryType()), overwrite=False)
    assert isinstance(writer, KmqBatchWriter)
    message = write_task(writer._sink, rows(), task=0)
    pickle.loads(pickle.dumps(writer)).commit([message])
    return looked


def _save_routed(shop: Shop, topic: str, value: bytes, **options: str) -> None:
    """Write a batch of one row that names its topic."""
    columns = {"value": pa.array([value], pa.binary()), "topic": pa.array([topic])}
    schema = StructType().add("value", BinaryType()).add("topic", StringType())
    writer = KmqDataSource({"path": shop.url, **options}).writer(schema, overwrite=False)
    assert isinstance(writer, KmqBatchWriter)
    writer.commit([write_task(writer._sink, [pa.RecordBatch.from_pydict(columns)], task=0)])


def test_a_batch_that_comes_again_is_stored_once(shop: Shop) -> None:
    for number, values in [(0, [b"a"]), (0, [b"a"]), (1, LARGE), (1, LARGE), (0, [b"a"])]:
        _commit_batch(shop, number, _task(shop, *values, query="q"))
    _commit_batch(shop, 0, _task(shop, b"c", query="another"))
    assert shop.values("orders") == [b"a", *LARGE, b"c"]


def test_a_version_that_is_not_above_the_last_one_is_ignored(shop: Shop) -> None:
    def save(version: int, *values: bytes, application: str = "job") -> bool:
        return _save(shop, values, txnAppId=application, TXNVERSION=str(version))

    assert save(5, b"a")
    assert not save(5, b"a")
    assert not save(0, b"b")
    assert save(6)  # nothing to write, and yet a version
    assert not save(6, b"c")
    assert save(0, b"d", application="another")
    assert save(7, *LARGE)
    assert shop.values("orders") == [b"a", b"d", *LARGE]


def test_a_version_counts_for_its_target_as_in_delta(shop: Shop) -> None:
    shop.create("returns")
    for topic in ("orders", "returns", "orders"):
        _save(shop, [b"a"], topic=topic, txnAppId="job", txnVersion="1")
    assert (shop.values("orders"), shop.values("returns")) == ([b"a"], [b"a"])
    for _ in range(2):
        _save_routed(shop, "returns", b"b", txnAppId="job", txnVersion="1")
    assert (shop.values("orders"), shop.values("returns")) == ([b"a"], [b"a", b"b"])
    shop.delete("orders")
    shop.create("orders")
    assert _save(shop, [b"c"], txnAppId="job", txnVersion="1")


def test_a_batch_write_that_is_skipped_is_told_with_what_to_do(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    warn_once.cache_clear()
    shop.create("returns")
    for topic in ("orders", "returns"):  # one target, as rows that name their topics have none
        assert not caplog.messages
        _save_routed(shop, topic, b"a", txnAppId="a job", txnVersion="7")
    assert shop.values("returns") == []
    (told,) = caplog.messages
    assert "txnVersion 7 of txnAppId 'a job'" in told
    assert "rows that name their topics in a column" in told
    assert "need a txnAppId of their own" in told


def test_a_job_that_finds_its_version_stored_only_at_the_commit_is_told_so_too(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    warn_once.cache_clear()
    options = {"path": shop.url, "topic": "orders", "txnAppId": "job", "txnVersion": "1"}
    sinks = [open_sink(parse_sink_options(options)) for _ in range(2)]
    for sink in sinks:
        KmqBatchWriter(sink).commit([_task(shop, b"a")])
    assert shop.values("orders") == [b"a"]
    assert [message for message in caplog.messages if "txnAppId 'job'" in message]


def test_a_stream_whose_checkpoint_is_an_old_one_is_told_so_and_a_replay_is_not(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    warn_once.cache_clear()
    for number in (4, 4):
        _commit_batch(shop, number, _task(shop, b"a", query="q"))
    assert not caplog.messages
    _commit_batch(shop, 2, _task(shop, b"b", query="q"))
    (told,) = caplog.messages
    assert "batch 2 of query q was not stored" in told
    assert "has stored batch 4" in told


def test_queries_on_copies_of_one_checkpoint_store_their_batches_in_topics_of_their_own(
    shop: Shop,
) -> None:
    shop.create("forked")
    for topic, value in (("orders", b"a"), ("forked", b"b"), ("orders", b"a"), ("forked", b"b")):
        writer = KmqStreamWriter(open_sink(SinkOptions(url=shop.url, topic=topic)))
        rows = [pa.RecordBatch.from_pydict({"value": pa.array([value])})]
        writer.commit([write_task(writer._sink, rows, task=0, query="q")], 7)
    assert (shop.values("orders"), shop.values("forked")) == ([b"a"], [b"b"])


@pytest.mark.parametrize("form", ["{}", "file:{}", "file://{}", "hdfs://host{}", "{}/not there"])
def test_the_checkpoint_in_a_folder_is_synced_before_a_streams_batch_is_stored(
    shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    seen: list[tuple[str, list[bytes | None]]] = []
    monkeypatch.setattr(
        checkpoint, "sync_file_system", lambda path: seen.append((path, shop.values("orders")))
    )
    given = {"path": shop.url, "topic": "orders", "checkpointLocation": form.format(tmp_path)}
    writer = KmqStreamWriter(open_sink(parse_sink_options(given)))
    for number, values in enumerate([[b"a"], [], [b"b"]]):
        writer.commit([_task(shop, *values, query="q")], number)
    is_here = form.endswith("{}") and "hdfs" not in form
    assert seen == ([(str(tmp_path), []), (str(tmp_path), [b"a"])] if is_here else [])


def test_two_jobs_that_write_one_version_at_once_store_it_once(shop: Shop) -> None:
    given = {"path": shop.url, "topic": "orders", "txnAppId": "job", "txnVersion": "1"}
    options = parse_sink_options(given)
    writers = [KmqBatchWriter(open_sink(options)) for _ in range(2)]
    messages = [_task(shop, b"a"), _task(shop, b"a")]
    for writer, message in zip(writers, messages, strict=True):
        writer.commit([message])
    assert shop.values("orders") == [b"a"]


def test_other_entries_of_the_commit_are_stored_once_with_the_records(shop: Shop) -> None:
    topic = open_log(shop.url, read_only=False).refresh().topic("orders")
    for _ in range(2):
        log = open_log(shop.url, read_only=False)
        moved = GroupOffsetsEntry("g", -1, topic.id, ((0, 1),))
        commit_written(log, [_task(shop, b"a")], BatchIdEntry("job", 1), also=[moved])
    assert (shop.values("orders"), shop.committed("g", "orders")) == ([b"a"], {0: 1})


def test_an_attempt_whose_message_is_not_committed_leaves_nothing_to_see(shop: Shop) -> None:
    failed, twin = _task(shop, *LARGE, query="q"), _task(shop, *LARGE, query="q")
    assert failed.staged != twin.staged
    _commit_batch(shop, 0, twin)
    assert shop.values("orders") == LARGE


def test_an_abort_after_a_commit_that_succeeded_destroys_nothing(shop: Shop) -> None:
    written = _task(shop, *LARGE, query="q")
    _commit_batch(shop, 0, written)
    writer = KmqStreamWriter(open_sink(SinkOptions(url=shop.url, topic="orders")))
    writer.abort([written, None], 0)
    assert shop.values("orders") == LARGE


def test_records_stand_in_the_order_of_the_tasks(shop: Shop) -> None:
    tasks = [[b"a"], LARGE, [b"b"], [b"c"], LARGE[:300], [b"d"]]
    messages = [_task(shop, *values, task=number) for number, values in enumerate(tasks)]
    assert [len(each.staged) for each in messages] == [0, 1, 0, 0, 1, 0]
    KmqBatchWriter(open_sink(SinkOptions(url=shop.url, topic="orders"))).commit([*messages])
    assert shop.values("orders") == [value for values in tasks for value in values]


@pytest.mark.parametrize("shop", ["local"], indirect=True)
def test_a_commit_names_a_file_in_at_most_100_bytes(shop: Shop) -> None:
    staged = [entry for n in range(10) for entry in _task(shop, *LARGE, task=n).staged]
    assert len({entry.staged for entry in staged}) == len(staged) == 10
    assert all(len(encode_entry(entry.bound(0))) <= 100 for entry in staged)


def test_a_driver_that_is_killed_in_any_step_of_the_commit_stores_the_batch_once(
    shop: Shop,
) -> None:
    batches = 0
    for step in range(1_000):
        messages = [_task(shop, *LARGE[:3], query="q"), _task(shop, *LARGE, query="q")]
        killed = killed_at(step, _drive, shop.url, batches, *messages)
        again = [_task(shop, *LARGE[:3], query="q"), _task(shop, *LARGE, query="q")]
        _commit_batch(shop, batches, *again)
        batches += 1
        assert shop.store.offsets("orders")[0][1] == batches * 1_003, f"killed at {step}"
        if not killed:
            break
    assert (2 if shop.url.startswith("s3:") else 10) < batches < 1_000
    assert shop.values("orders") == [*LARGE[:3], *LARGE] * batches


def test_a_batch_whose_commit_was_collected_is_stored_once_as_well(tmp_path: Path) -> None:
    open_identity(LocalDisk(tmp_path / "shop"), SYSTEM, create=True, log_file_bytes=4096)
    shop = Shop(tmp_path / "shop")
    shop.create("orders", 1)
    _commit_batch(shop, 0, _task(shop, b"a", query="q"))
    lsn = shop.lsn()
    for _ in range(20):
        shop.send("orders", 0, 5)
    shop.store.seal()
    shop.store.checkpoint()
    shop.store.collect(grace=0)
    assert next(shop.store.commits()).lsn > lsn
    before = shop.lsn()
    _commit_batch(shop, 0, _task(shop, b"a", query="q"))
    assert (shop.lsn(), len(shop.values("orders"))) == (before, 101)


PAIRS = {
    "version alone": ({"txnVersion": "1"}, "'txnVersion' needs option 'txnAppId' beside it"),
    "name alone": ({"txnAppId": "job"}, "'txnAppId' needs option 'txnVersion' beside it"),
    "negative": ({"txnAppId": "job", "txnVersion": "-1"}, "'txnVersion' is '-1': expected a whole"),
    "half a character": ({"txnAppId": "\ud800", "txnVersion": "1"}, "'txnAppId' is .*: expected 1"),
    "no name": ({"txnAppId": "", "txnVersion": "1"}, "'txnAppId' is '': expected 1 to 1000 bytes"),
}


@pytest.mark.parametrize(("options", "message"), PAIRS.values(), ids=PAIRS.keys())
def test_options_that_can_not_hold_are_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        parse_sink_options({"path": "x", "topic": "orders", **options})


@pytest.mark.parametrize("shop", ["local"], indirect=True)
def test_a_stream_takes_no_version_of_its_own(shop: Shop) -> None:
    options = {"path": shop.url, "topic": "orders", "txnAppId": "job", "txnVersion": "1"}
    with pytest.raises(InvalidRequestError, match="are for batch writes"):
        KmqDataSource(options).streamWriter(StructType().add("value", BinaryType()), False)
