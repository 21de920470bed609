"""Finds messages of keyed queues that a read of Spark's loses, repeats or numbers wrongly."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from kmq_spark.client.keyed.queues import KeyedQueues
from kmq_spark.datasource.batch_reader import KmqBatchReader
from kmq_spark.datasource.executor import record_batches
from kmq_spark.datasource.opening import open_log
from kmq_spark.datasource.source import KmqDataSource
from kmq_storage import limits
from kmq_storage.errors import CorruptionError, DataLossError, InvalidRequestError
from kmq_storage.format import queue_directory
from kmq_storage.keyed.rows import KeyedReader, KeyedRows
from kmq_storage.keyed.wanted import WantedQueues
from kmq_storage.log.reading import reader as chunk_reader
from kmq_storage.maintenance.collect import collect
from tests.spark.shop import Shop
from tests.unit.datasource.archiver import Archiver

NAMES = [b"a/1", b"a/2", b"a/\xff", b"b/1", b"b/2"]
Message = tuple[bytes, int, bytes]


@pytest.fixture
def shop(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    """Forty messages of five queues: half of them in runs of small batches, half behind these."""
    monkeypatch.setattr(limits, "RUN_BATCH_ROWS", 3)
    monkeypatch.setattr(queue_directory, "_BLOCK_QUEUES", 2)
    in_bucket = getattr(request, "param", "") == "s3"
    made = Shop(request.getfixturevalue("s3_url") if in_bucket else tmp_path / "shop")
    for turn in range(4):
        _put(made, turn)
        if turn < 2:
            made.store.seal()
    return made


def _queues(shop: Shop) -> KeyedQueues:
    return shop.store.keyed_queues("inbox")


def _put(shop: Shop, turn: int) -> None:
    _queues(shop).put_batch(NAMES * 2, [b"%d.%d" % (turn, n) for n in range(10)])


def _expected(shop: Shop) -> list[Message]:
    return [
        (name, index, value)
        for name in NAMES
        for index, value in enumerate(_queues(shop).get(name, 0, 999))
    ]


def _read(shop: Shop, **options: str) -> list[list[Message]]:
    """The messages by task, as an executor reads them."""
    given = {"path": shop.url, "subscribe": "inbox", **options}
    source = KmqDataSource(given)
    reader = pickle.loads(pickle.dumps(source.reader(source.schema())))
    assert isinstance(reader, KmqBatchReader)
    tasks = pickle.loads(pickle.dumps(reader.partitions()))
    return [[m for batch in reader.read(task) for m in _messages(batch)] for task in tasks]


def _messages(batch: pa.RecordBatch) -> list[Message]:
    columns = (batch.column(name).to_pylist() for name in ("queue", "index", "value"))
    return list(zip(*columns, strict=True))


def _all(shop: Shop, **options: str) -> list[Message]:
    return sorted(message for task in _read(shop, **options) for message in task)


@pytest.mark.parametrize("shop", ["local", "s3"], indirect=True)
def test_every_message_comes_with_its_queue_and_index(shop: Shop) -> None:
    assert _all(shop) == _expected(shop)


@pytest.mark.parametrize("rows", ["1", "7"])
def test_tasks_that_share_a_run_have_each_message_once(shop: Shop, rows: str) -> None:
    found = _read(shop, maxRecordsPerPartition=rows)
    assert max(map(len, found)) == int(rows)
    assert sorted(message for task in found for message in task) == _expected(shop)


def test_messages_between_offsets_keep_their_indexes(shop: Shop) -> None:
    bounds = {"startingOffsets": '{"inbox": {"0": 7}}', "endingOffsets": '{"inbox": {"0": 33}}'}
    found = _all(shop, **bounds)
    by_value = {value: (name, index) for name, index, value in _expected(shop)}
    assert len(found) == 26
    assert all(by_value[value] == (name, index) for name, index, value in found)


CHOSEN = {
    "one": ("b/1", [b"b/1"]),
    "a list": (" b/2 , a/1", [b"a/1", b"b/2"]),
    "a beginning": ("a/*", [b"a/1", b"a/2", b"a/\xff"]),
    "both": ("a/*, b/2, a/1", [b"a/1", b"a/2", b"a/\xff", b"b/2"]),
    "all": ("*", NAMES),
    "as they stand": ('["a/*", "b/1", {"prefix": "a/1"}]', [b"a/1", b"b/1"]),
    "a name that is no text": ('["b/1", {"base64": "YS//"}]', [b"a/\xff", b"b/1"]),
    "nobody": ("c", []),
    "an empty array": ("[]", []),
}


@pytest.mark.parametrize(("option", "names"), CHOSEN.values(), ids=CHOSEN.keys())
def test_only_the_queues_that_are_chosen_are_read(
    shop: Shop, option: str, names: list[bytes]
) -> None:
    expected = [message for message in _expected(shop) if message[0] in names]
    assert _all(shop, queues=option) == expected


def test_of_a_run_only_batches_with_the_chosen_queues_are_read(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.store.seal()
    shop.store.compact("inbox")
    read: list[int] = []
    stored = chunk_reader.ChunkReader.stored

    def counted(self, chunk, layout):
        read.append(chunk.rows)
        return stored(self, chunk, layout)

    monkeypatch.setattr(chunk_reader.ChunkReader, "stored", counted)
    monkeypatch.setattr(chunk_reader.ChunkReader, "read", None)
    assert _read(shop, queues="c, d*") == [[]] * len(_read(shop, queues="c"))
    assert read == []
    (task,) = [task for task in _read(shop, queues="a/1") if task]
    assert len(task) == 8
    assert sum(read) < 40 * len(_read(shop, queues="c"))


def test_records_of_no_queue_have_none_and_are_left_out_where_queues_are_chosen(
    shop: Shop,
) -> None:
    with shop.store.producer() as producer:
        producer.send("inbox", b"no key").result(10)
        producer.send("inbox", None, b"c").result(10)
        producer.send("inbox", b"last", b"a/1").result(10)
    for seal in (False, True):
        if seal:
            shop.store.seal()
        found = [message for task in _read(shop) for message in task]
        assert Counter(m[2] for m in found if m[1] is None) == {b"no key": 1, None: 1}
        assert (b"a/1", 8, b"last") in found
        assert _all(shop, queues="*") == _expected(shop)


@pytest.mark.parametrize("where", ["behind the runs", "in the run before", "in their run"])
def test_messages_of_an_ended_queue_that_are_still_there_keep_their_indexes(
    shop: Shop, where: str
) -> None:
    before = _expected(shop)
    if where == "in the run before":
        shop.store.seal()
    _queues(shop).delete("a/1")
    _queues(shop).put("a/1", b"anew").result()
    if where != "behind the runs":
        shop.store.seal()
    found = [message for message in _all(shop, queues="*") if message not in _expected(shop)]
    # Who ends in a run has nothing there of before; the first runs have four.
    kept = {"behind the runs": 8, "in the run before": 8, "in their run": 4}[where]
    assert found == [message for message in before if message[0] == b"a/1"][:kept]


def test_the_columns_are_those_of_a_topic_and_two_more(shop: Shop, tmp_path: Path) -> None:
    def names(**options: str) -> list[str]:
        schema = KmqDataSource({"path": shop.url, "subscribe": "inbox", **options}).schema()
        assert isinstance(schema, StructType)
        return schema.names

    assert names()[-3:] == ["timestampType", "queue", "index"]
    assert names(includeHeaders="true")[-3:] == ["headers", "queue", "index"]
    assert names(columns="index,queue") == ["index", "queue"]
    shop.create("orders")
    archive = str(Archiver(shop, tmp_path / "lake", "inbox").path)
    assert names(archive=archive)[-1] == names(subscribe="inbox,orders")[-1] == "timestampType"


def test_an_index_alone_is_that_of_its_message(shop: Shop) -> None:
    source = KmqDataSource({"path": shop.url, "subscribe": "inbox", "columns": "index,offset"})
    reader = source.reader(source.schema())
    assert isinstance(reader, KmqBatchReader)
    read = [b for task in reader.partitions() for b in reader.read(task)]
    found = pa.Table.from_batches(read).sort_by("offset")["index"].to_pylist()
    assert found == [index for index in range(8) for _ in NAMES]


REFUSED = {
    "no keyed topic": ({"subscribe": "orders"}, "orders has no queues"),
    "one of two": ({"subscribe": "inbox,orders"}, "orders has no queues"),
    "an empty name": ({"queues": "a,,b"}, "'queues' is 'a,,b': expected names of queues"),
    "no names": ({"queues": "[17, 42]"}, "expected a JSON array of names of queues"),
    "no base64": ({"queues": '[{"base64": "?"}]'}, "expected a JSON array of names of queues"),
    "no text": ({"queues": '["\\ud800"]'}, "expected a JSON array of names of queues"),
    "half a character": ({"queues": "a,\ud800*"}, "expected names of queues"),
    "an array without its end": ({"queues": '["a"'}, "expected a JSON array of names of queues"),
    "names as a list": ({"queues": "[a],[b]"}, "expected a JSON array of names of queues"),
    "endless arrays": ({"queues": "[" * 100_000}, "expected a JSON array of names of queues"),
    "a table": ({"table": "topics"}, "option 'queues' chooses records"),
}


@pytest.mark.parametrize(("options", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_queues_that_can_not_be_chosen_are_refused(
    shop: Shop, options: dict[str, str], message: str
) -> None:
    shop.create("orders")
    given = {"path": shop.url, "subscribe": "inbox", "queues": "a", **options}
    if "table" in options:
        del given["subscribe"]
    with pytest.raises(InvalidRequestError, match=message):
        KmqDataSource(given).schema()


def test_a_later_topic_without_queues_is_refused_where_the_others_have_them(shop: Shop) -> None:
    given = {"path": shop.url, "subscribePattern": "inbox|orders"}
    reader = KmqDataSource(given).reader(KmqDataSource(given).schema())
    shop.create("orders")
    with pytest.raises(InvalidRequestError, match="topic orders has no queues"):
        reader.partitions()


@pytest.mark.parametrize("wanted", [None, WantedQueues(prefixes=(b"a/",))])
def test_a_read_goes_on_where_it_was_when_its_run_was_merged_and_collected(
    shop: Shop, wanted: WantedQueues | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunk_reader, "_TOUCHED_BYTES", -1)  # nothing stays mapped
    with shop.store.producer() as producer:
        producer.send_batch("inbox", [b"no key"] * 5).result(10)
    shop.store.seal()
    log = open_log(shop.url, read_only=True)
    topic_id = log.refresh().topic("inbox").id
    reader = KeyedReader(log, topic_id, ("value", "index"), wanted, lambda *_: pytest.fail("a gap"))
    for read_before in range(1, 14):
        found: list[KeyedRows] = list(islice(pieces := reader.between(3, 40), read_before))
        _put(shop, 4)
        shop.store.seal()
        shop.store.compact("inbox")
        shop.store.checkpoint()
        collect(shop.store.log, grace=0.0)
        found += pieces
        offsets = sorted(offset for each in found for offset in each.offsets.tolist())
        expected = [n for n in range(3, 40) if wanted is None or n % 5 < 3]
        assert offsets == expected


@pytest.mark.parametrize(("queues", "read"), [("*", "b/1"), ("b/*", "b/1"), ("b/2", "b/2")])
def test_a_damaged_run_names_messages_by_queue_and_index(shop: Shop, queues: str, read: str):
    (_, file) = sorted(Path(shop.url).glob("segments/*/0/*.arrow"))
    before, behind = file.read_bytes().rsplit(b"1.8", 1)
    file.write_bytes(before + b"?.8" + behind)
    named = f"from b'{read}', index 2 to b'{read}', index {3 if read == 'b/1' else 2}"
    with pytest.raises(CorruptionError, match=f"messages of inbox, {named}, can't be read"):
        _read(shop, queues=queues)


@pytest.mark.parametrize("start", [20, 13], ids=["between runs", "inside of one"])
def test_of_a_trimmed_topic_what_is_kept_comes_with_its_indexes(shop: Shop, start: int) -> None:
    kept = _by_offset(shop)[start:]
    shop.store.trim("inbox", {0: start})
    for settle in (shop.store.topics, shop.store.seal, lambda: shop.store.compact("inbox")):
        settle()
        assert _all(shop) == sorted(kept)
        assert _all(shop, maxRecordsPerPartition="1") == sorted(kept)
        assert _all(shop, queues="b/*") == sorted(m for m in kept if m[0].startswith(b"b/"))


def test_a_read_that_begins_at_the_last_message_given_up_says_so(shop: Shop) -> None:
    kept = _by_offset(shop)[30:]
    shop.store.trim("inbox", {0: 30})
    given = {"startingOffsets": '{"inbox": {"0": 29}}'}
    with pytest.raises(DataLossError, match=r"29 to 40 .*, the log holds 30 to 40: 1 records are"):
        _all(shop, **given)
    found = _all(shop, **given, failOnDataLoss="false")
    assert found == sorted(kept) == _all(shop)


def _by_offset(shop: Shop) -> list[Message]:
    """All messages in the order of their offsets: of each turn two of each queue."""
    found = {(name, index): value for name, index, value in _expected(shop)}
    places = [(name, 2 * turn + n) for turn in range(4) for n in range(2) for name in NAMES]
    return [(*place, found[place]) for place in places]


@pytest.mark.parametrize("settle", ["at once", "when files are gone"])
def test_a_task_whose_records_were_trimmed_says_so(shop: Shop, settle: str) -> None:
    log, told = open_log(shop.url, read_only=True), list[tuple[int, int]]()
    topic, columns = log.refresh().topic("inbox"), ("key", "value", "index")
    reader = KeyedReader(log, topic.id, columns, None, lambda _, *span: told.append(span))
    found = reader.between(0, 40)
    assert set(next(found).offsets.tolist()) < set(range(20))
    shop.store.trim("inbox", {0: 30})
    if settle == "when files are gone":
        shop.store.checkpoint()
        collect(shop.store.log, grace=0.0)
        *_, last = found
        assert (last.offsets.tolist(), told.pop()) == (list(range(30, 40)), (10, 30))
    [left] = reader.between(0, 40)
    assert (left.offsets.tolist(), told) == (list(range(30, 40)), [(0, 30)])


def _trim(shop: Shop) -> None:
    shop.store.trim("inbox", {0: 30})


def _delete(shop: Shop) -> None:
    shop.delete("inbox")


def _later(shop: Shop, fail: str) -> Iterator[pa.RecordBatch]:
    """What a task that was planned now reads from now on."""
    given = {"path": shop.url, "subscribe": "inbox", "failOnDataLoss": fail}
    reader = KmqDataSource(given).reader(KmqDataSource(given).schema())
    (task,) = reader.partitions()
    return reader.read(task)


BEFORE = [
    (
        _trim,
        r"inbox-0: offsets 0 to 40 \(next\) .*, the log holds 30 to 40: 30 records are lost",
        10,
    ),
    (_delete, r"Topic\[inbox\] with id .* was deleted: 40 of its records went unread", 0),
]


@pytest.mark.parametrize(("lose", "told", "kept"), BEFORE)
def test_what_a_task_finds_gone_is_data_loss_or_left_out_where_that_is_wanted(
    shop: Shop,
    caplog: pytest.LogCaptureFixture,
    lose: Callable[[Shop], None],
    told: str,
    kept: int,
) -> None:
    fails, goes_on, expected = _later(shop, "true"), _later(shop, "false"), _by_offset(shop)
    lose(shop)
    with pytest.raises(DataLossError, match=told):
        list(fails)
    found = [message for batch in goes_on for message in _messages(batch)]
    assert sorted(found) == sorted(expected[40 - kept :])
    assert caplog.text.count("failOnDataLoss=false: reading goes on") == 1


MEANWHILE = [
    (_trim, r"inbox: offsets 0 to 9 were trimmed while they were read: how much of"),
    (_delete, r"was deleted: how much of it went unread is not known"),
]


@pytest.mark.parametrize(("lose", "told"), MEANWHILE)
def test_what_goes_while_a_task_reads_it_is_data_loss_or_left_out_where_that_is_wanted(
    shop: Shop,
    monkeypatch: pytest.MonkeyPatch,
    lose: Callable[[Shop], None],
    told: str,
) -> None:
    monkeypatch.setattr(chunk_reader, "_TOUCHED_BYTES", -1)  # nothing stays mapped
    monkeypatch.setattr(record_batches, "_ENOUGH_ROWS", 1)  # each piece is handed out at once
    fails, goes_on, expected = _later(shop, "true"), _later(shop, "false"), _by_offset(shop)
    next(fails)
    found = _messages(next(goes_on))
    lose(shop)
    shop.store.checkpoint()
    collect(shop.store.log, grace=0.0)
    with pytest.raises(DataLossError, match=told):
        list(fails)
    found += [message for batch in goes_on for message in _messages(batch)]
    assert len(found) == len(set(found))
    assert set(found) <= set(expected)
    assert lose is _delete or set(found) >= set(expected[30:])


@pytest.mark.parametrize("trimmed", [0, 1, 17, 39, 40])
def test_over_an_archive_each_message_comes_once_with_its_queue_as_key(
    shop: Shop, tmp_path: Path, trimmed: int
) -> None:
    expected = [(name, value) for name, _, value in _expected(shop)]
    archiver = Archiver(shop, tmp_path / "lake", "inbox")
    archiver.write()
    archiver.commit()
    shop.store.trim("inbox", {0: trimmed})
    given = {"path": shop.url, "subscribe": "inbox", "archive": str(tmp_path / "lake")}
    reader = KmqDataSource(given).reader(KmqDataSource(given).schema())
    read = pa.Table.from_batches(b for task in reader.partitions() for b in reader.read(task))
    found = zip(read["key"].to_pylist(), read["value"].to_pylist(), strict=True)
    assert sorted(found) == sorted(expected)
