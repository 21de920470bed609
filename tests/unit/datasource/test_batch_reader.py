"""Finds bounds that are misread, and tasks that lose, repeat or reorder records, without a JVM."""

from __future__ import annotations

import pickle
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql.datasource import InputPartition

import kmq_spark as kmq
from kmq_spark.datasource.batch_reader import KmqBatchReader
from kmq_spark.datasource.opening import open_log
from kmq_spark.datasource.planning import ranges
from kmq_storage.errors import (
    CorruptionError,
    DataLossError,
    InvalidRequestError,
    NotFoundError,
)
from tests.spark.shop import Place, Shop
from tests.unit.datasource.engine import batch_reader, plain_columns
from tests.unit.datasource.spark_stand_in import SparkStandIn


def _tasks(shop: Shop, **options: str) -> list[list[Place]]:
    given_options = {"path": shop.url, "subscribe": "orders", **options}
    reader = batch_reader(given_options)
    return [
        list(_places(pickle.loads(pickle.dumps(reader)), pickle.loads(pickle.dumps(task))))
        for task in reader.partitions()
    ]


def _places(reader: KmqBatchReader, task: InputPartition) -> Iterator[Place]:
    for batch in reader.read(task):
        assert batch.schema.equals(plain_columns())
        batch.validate(full=True)
        yield from zip(
            *batch.select(["topic", "partition", "offset"]).to_pydict().values(), strict=True
        )


def _read(shop: Shop, **options: str) -> list[Place]:
    return [place for task in _tasks(shop, **options) for place in task]


def test_everything_is_read_in_the_order_of_each_partition(shop: Shop) -> None:
    for partition in (0, 2, 0, 2):
        shop.send("orders", partition, 5)
    assert _read(shop) == shop.places("orders")


def test_small_partitions_share_one_task(shop: Shop) -> None:
    for partition in range(3):
        shop.send("orders", partition, 5)
    assert len(_tasks(shop)) == 1


def test_nothing_to_read_is_one_task_that_reads_nothing(shop: Shop) -> None:
    reader = batch_reader({"path": shop.url, "subscribe": "orders"})
    assert reader.partitions() == []
    assert list(reader.read(InputPartition(None))) == []


def test_bounds_mix_words_and_numbers_and_the_end_is_exclusive(shop: Shop) -> None:
    for partition in range(3):
        shop.send("orders", partition, 10)
    found = _read(
        shop,
        startingOffsets='{"orders":{"0":-2,"1":4,"2":9}}',
        endingOffsets='{"orders":{"0":3,"1":-1,"2":9}}',
    )
    assert found == [
        *[("orders", 0, n) for n in range(3)],
        *[("orders", 1, n) for n in range(4, 10)],
    ]


REFUSED = {
    "start at latest": ({"startingOffsets": "latest"}, "'startingOffsets' is latest: a batch"),
    "start at -1": ({"startingOffsets": '{"orders":{"0":-1,"1":0,"2":0}}'}, "latest for orders-0"),
    "start misses one": ({"startingOffsets": '{"orders":{"0":1,"1":0}}'}, "must name every part"),
    "end misses one": ({"endingOffsets": '{"orders":{"0":1}}'}, "'endingOffsets' must name every"),
    "end names another topic": (
        {"endingOffsets": '{"orders":{"0":1,"1":0,"2":0},"returns":{"0":1}}'},
        "'endingOffsets' must name every",
    ),
    "start beyond end": (
        {
            "startingOffsets": '{"orders":{"0":2,"1":0,"2":0}}',
            "endingOffsets": '{"orders":{"0":1,"1":0,"2":0}}',
        },
        "orders-0: startingOffsets 2 is beyond endingOffsets 1",
    ),
    "start beyond latest": (
        {"startingOffsets": '{"orders":{"0":11,"1":0,"2":0}}'},
        "orders-0: startingOffsets 11 is beyond endingOffsets 10",
    ),
}


@pytest.mark.parametrize(("options", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_bounds_that_fit_neither_topic_nor_each_other_are_refused(
    shop: Shop, options: dict[str, str], message: str
) -> None:
    shop.send("orders", 0, 10)
    with pytest.raises(InvalidRequestError, match=message):
        _tasks(shop, **options)


def test_an_end_beyond_the_log_is_data_loss_or_clipped(shop: Shop) -> None:
    shop.send("orders", 0, 10)
    end = '{"orders":{"0":15,"1":0,"2":0}}'
    with pytest.raises(DataLossError, match=r"orders-0: offsets 0 to 15 .* the log holds 0 to 10"):
        _read(shop, endingOffsets=end)
    assert _read(shop, endingOffsets=end, failOnDataLoss="false") == shop.places("orders")


def test_a_batch_may_begin_at_the_offsets_of_a_group(shop: Shop) -> None:
    sent = shop.send("orders", 0, 10)
    assert _read(shop, group="g", startingOffsets="group") == sent
    shop.commit("g", "orders", {0: 7})
    assert _read(shop, group="g", startingOffsets="group") == sent[7:]
    assert _read(shop, group="g") == sent


def test_topics_are_chosen_by_name_by_pattern_and_by_partition(shop: Shop) -> None:
    shop.create("returns", 2)
    orders = [*shop.send("orders", 0, 2), *shop.send("orders", 2, 2)]
    returns = shop.send("returns", 1, 2)
    assert _read(shop, subscribe="orders, returns") == orders + returns
    by_pattern = {"path": shop.url, "subscribePattern": "rns$"}
    by_partition = {"path": shop.url, "assign": '{"orders":[2,9],"returns":[0,1]}'}
    for options, expected in ((by_pattern, returns), (by_partition, orders[2:] + returns)):
        reader = batch_reader(options)
        assert [p for task in reader.partitions() for p in _places(reader, task)] == expected


def test_a_missing_topic_is_an_error_or_left_out(shop: Shop) -> None:
    sent = shop.send("orders", 0, 2)
    with pytest.raises(NotFoundError, match=r"Topic\[nowhere\] doesn't exist"):
        _read(shop, subscribe="orders,nowhere")
    assert _read(shop, subscribe="orders,nowhere", failOnDataLoss="false") == sent


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"subscribe": "order,orders"}, r"'subscribe' names it \(did you mean 'orders'\?\); with"),
        ({"subscribe": "xyz"}, r"'subscribe' names it; with failOnDataLoss=false a query goes on"),
        ({"assign": '{"order":[0]}'}, r"'assign' names it \(did you mean 'orders'\?\); with fail"),
    ],
)
def test_who_names_a_missing_topic_is_told_the_option_the_nearest_one_and_what_to_do(
    shop: Shop, options: dict[str, str], told: str
) -> None:
    message = rf"^Topic\[\w+\] doesn't exist\. Option {told}"
    with pytest.raises(NotFoundError, match=message) as refused:
        batch_reader({"path": shop.url, **options}).partitions()
    assert refused.value.context["option"] in options


def test_a_topic_whose_making_is_damaged_is_not_said_to_be_missing_by_a_read(shop: Shop) -> None:
    shop.create("returns")
    made = shop.lsn()
    shop.send("orders", 0, 1)
    shop.damage_commit(made)
    with pytest.raises(CorruptionError):
        _read(shop, subscribe="returns")


def test_min_partitions_divides_inside_of_record_batches(shop: Shop) -> None:
    sent = shop.send("orders", 0, 100)
    assert [len(task) for task in _tasks(shop, minPartitions="4")] == [25, 25, 25, 25]
    assert [len(task) for task in _tasks(shop, minPartitions="1")] == [100]
    assert _read(shop, minPartitions="7") == sent


def test_one_partition_is_read_by_several_tasks_when_it_is_large(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ranges, "TASK_BYTES_MAX", 2_000)
    sent = [place for _ in range(20) for place in shop.send("orders", 0, 10)]
    tasks = _tasks(shop)
    assert len(tasks) > 4
    assert [place for task in tasks for place in task] == sent


def test_a_task_that_reads_imports_no_pandas(shop: Shop, tmp_path: Path) -> None:
    shop.send("orders", 0, 10)
    reader = batch_reader({"path": shop.url, "subscribe": "orders"})
    task = tmp_path / "task"
    task.write_bytes(pickle.dumps((reader, reader.partitions()[0])))
    code = (
        "import pickle, sys\n"
        "reader, task = pickle.load(open(sys.argv[1], 'rb'))\n"
        "assert sum(batch.num_rows for batch in reader.read(task)) == 10\n"
        "sys.exit('pandas' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code, str(task)], check=True)


@pytest.mark.parametrize("limits", [{}, {"minPartitions": "7"}, {"maxRecordsPerPartition": "4"}])
def test_what_was_planned_is_read_again_and_again_whatever_comes_and_moves(
    shop: Shop, limits: dict[str, str]
) -> None:
    sent = [place for p in range(3) for _ in range(3) for place in shop.send("orders", p, 5)]
    shop.store.seal()
    shop.store.checkpoint()
    sent = sorted(sent + shop.send("orders", 1, 5))
    options = {"path": shop.url, "subscribe": "orders", **limits}
    reader = batch_reader(options)
    tasks = reader.partitions()
    for _ in range(2):
        for partition in range(3):
            shop.send("orders", partition, 5)
        shop.store.seal()
        shop.store.checkpoint()
        shop.store.collect(grace=0)
        assert sorted(place for task in tasks for place in _places(reader, task)) == sent


@pytest.mark.parametrize("limits", [{"minPartitions": "8"}, {"maxBytesPerPartition": "2kb"}])
def test_one_large_batch_of_one_partition_is_shared_by_several_tasks(
    shop: Shop, limits: dict[str, str]
) -> None:
    shop.create("single", 1)
    sent = shop.send("single", 0, 1_000)
    for step in (lambda: None, shop.store.seal):
        step()
        reader = batch_reader({"path": shop.url, "subscribe": "single", **limits})
        tasks = [list(_places(reader, each)) for each in reader.partitions()]
        assert len(tasks) >= 8
        assert max(map(len, tasks)) <= 1_000 // 4
        assert [place for task in tasks for place in task] == sent


def test_a_store_that_was_replaced_by_another_is_not_served_from_memory(
    shop: Shop, tmp_path: Path
) -> None:
    shop.send("orders", 0, 3)
    assert len(_read(shop)) == 3
    shop.close()
    (tmp_path / "shop").rename(tmp_path / "old")
    other = Shop(tmp_path / "shop")
    other.create("orders", 1)
    other.send("orders", 0, 1)
    assert len(_read(other)) == 1


def test_a_store_that_was_restored_in_its_place_is_read_and_written_as_it_is_now(
    shop: Shop, tmp_path: Path
) -> None:
    shop.create("copies")
    backed_up = shop.send("orders", 0, 3)
    shop.close()
    shutil.copytree(tmp_path / "shop", tmp_path / "backup")
    with kmq.open(shop.url) as store, store.producer() as producer:
        producer.send("orders", b"after the backup", partition=0)
    assert len(_read(shop)) == _copied(shop) == 4
    (tmp_path / "shop").rename(tmp_path / "old")
    (tmp_path / "backup").rename(tmp_path / "shop")
    assert _read(shop) == backed_up
    assert _copied(shop) == 3


def _copied(shop: Shop) -> int:
    """Copy what a group has not read yet; how many records the copy has by then."""
    spark = cast("SparkSession", SparkStandIn())
    with kmq.incremental(spark, shop.url, "g", subscribe="orders") as new:
        new.write(new.df, topic="copies")
    with kmq.open(shop.url) as store:
        return store.describe_topic("copies").rows


def _trim(shop: Shop, partition: int, start: int) -> None:
    """As if the log had lost its beginning: nothing trims a log yet."""
    for read_only in (True, False):
        topic = open_log(shop.url, read_only=read_only).refresh().topic("orders")
        topic.partition(partition).start = start


def test_records_that_aged_out_are_data_loss_or_skipped_with_a_warning(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    sent = shop.send("orders", 0, 10)
    _trim(shop, 0, 4)
    assert _read(shop) == sent[4:]
    start = '{"orders":{"0":1,"1":0,"2":0}}'
    with pytest.raises(DataLossError, match=r"the log holds 4 to 10: 3 records are lost; set fail"):
        _read(shop, startingOffsets=start)
    assert _read(shop, startingOffsets=start, failOnDataLoss="false") == sent[4:]
    assert caplog.text.count("orders-0: offsets 1 to 10") == 1


def test_what_a_repair_cut_out_is_data_loss_or_skipped_with_a_warning(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    sent = shop.send("orders", 0, 4) + shop.send("orders", 0, 3) + shop.send("orders", 0, 3)
    shop.cut_out("orders", 0, 4, 7)
    with pytest.raises(DataLossError, match=r"offsets 4 to 6 were lost .*; set failOnDataLoss"):
        _read(shop)
    assert _read(shop, failOnDataLoss="false") == sent[:4] + sent[7:]
    assert caplog.text.count("orders-0: offsets 4 to 6 were lost") == 1
    assert _read(shop, failOnDataLoss="false", minPartitions="6") == sent[:4] + sent[7:]
    assert caplog.text.count("orders-0: offsets 4 to 6 were lost") == 2, "once per read"


def test_each_read_of_a_process_logs_what_it_does_without(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    shop.send("orders", 0, 4)
    shop.store.trim("orders", {0: 3})
    start = '{"orders":{"0":1,"1":0,"2":0}}'
    for reads in (1, 2, 3):
        _read(shop, subscribe="orders,away", startingOffsets=start, failOnDataLoss="false")
        assert caplog.text.count("the log holds 3 to 4: 2 records are lost") == reads
        assert caplog.text.count("Topic[away] doesn't exist (failOnDataLoss=false") == reads


def test_a_damaged_record_batch_is_an_error_that_names_its_place(shop: Shop) -> None:
    sent = shop.send("orders", 0, 10)
    shop.send("orders", 1, 10)
    (file,) = Path(shop.url).glob("log/*.log")
    data = file.read_bytes()
    with file.open("r+b") as log:
        log.seek(data.index(b"v15"))
        log.write(b"v99")
    with pytest.raises(CorruptionError, match="orders-1, offsets 0 to 9") as raised:
        _read(shop)
    assert raised.value.context["file"] == f"log/{file.name}"
    end = '{"orders":{"0":-1,"1":0,"2":0}}'
    assert _read(shop, endingOffsets=end) == sent


sizes = st.lists(st.tuples(st.integers(0, 2), st.integers(1, 40)), max_size=12)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(sizes, st.data())
def test_any_bounds_and_any_tasks_read_exactly_the_records_between(
    tmp_path_factory: pytest.TempPathFactory, sent: list[tuple[int, int]], data: st.DataObject
) -> None:
    shop = Shop(tmp_path_factory.mktemp("any") / "shop")
    shop.create("orders", 3)
    for partition, count in sent:
        shop.send("orders", partition, count)
    ends = {p: end for p, (_, end) in shop.store.offsets("orders").items()}
    low = {p: data.draw(st.integers(0, end)) for p, end in ends.items()}
    high = {p: data.draw(st.integers(low[p], end)) for p, end in ends.items()}
    options = {"startingOffsets": _json(low), "endingOffsets": _json(high)}
    wanted = data.draw(st.one_of(st.none(), st.integers(1, 9)))
    options |= {} if wanted is None else {"minPartitions": str(wanted)}
    between = [
        place for place in shop.places("orders") if low[place[1]] <= place[2] < high[place[1]]
    ]
    assert _read(shop, **options) == between


def _json(offsets: dict[int, int]) -> str:
    return '{"orders":{' + ",".join(f'"{p}":{n}' for p, n in offsets.items()) + "}}"
