"""Finds losses that die with the run that found them, and those that are counted again."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.spark.shop import Shop
from tests.unit.datasource.engine import Crash, Stream, careless, careless_of_any

AFTER = [Crash.AFTER_WAL, Crash.AFTER_READ, Crash.AFTER_SINK]


def _made_again(shop: Shop) -> Stream:
    stream = careless(shop, maxOffsetsPerTrigger="4")
    shop.send("orders", 0, 10)
    stream.start().trigger()
    shop.delete("orders")
    shop.create("orders", 1)
    shop.send("orders", 0, 3)
    return stream


def _deleted(shop: Shop) -> Stream:
    stream = careless(shop, maxOffsetsPerTrigger="4")
    shop.send("orders", 0, 10)
    stream.start().trigger()
    shop.delete("orders")
    return stream


def _begun_below_the_log(shop: Shop) -> Stream:
    shop.send("orders", 0, 10)
    shop.store.trim("orders", {0: 7})
    return careless(shop, startingOffsets='{"orders":{"0":1,"1":0,"2":0}}')


def _trimmed(shop: Shop) -> Stream:
    stream = careless(shop, maxOffsetsPerTrigger="4")
    shop.send("orders", 0, 12)
    stream.start().trigger()
    shop.store.trim("orders", {0: 10})
    return stream


def _left_by_a_group(shop: Shop) -> Stream:
    before = careless(shop, group="billing", maxOffsetsPerTrigger="4")
    shop.send("orders", 0, 10)
    query = before.start()
    query.trigger()
    query.trigger(Crash.BEFORE_WAL)
    before.stop()
    shop.delete("orders")
    shop.create("orders", 1)
    return careless(shop, group="billing")


@pytest.mark.parametrize("crash", AFTER)
@pytest.mark.parametrize(
    "losing", [_made_again, _deleted, _begun_below_the_log, _trimmed, _left_by_a_group]
)
def test_a_loss_is_counted_once_wherever_the_run_that_found_it_dies(
    shop: Shop,
    losing: Callable[[Shop], Stream],
    crash: Crash,
    caplog: pytest.LogCaptureFixture,
) -> None:
    stream = losing(shop)
    stream.start().trigger(crash)
    caplog.clear()
    query = stream.start(available_now=True)
    query.trigger()
    assert stream.lost == 6, "though this run may end here"
    assert "passed over 6 lost records" in caplog.text or "6 records are lost" in caplog.text
    assert not query.trigger()
    query = stream.start(failOnDataLoss="true")
    shop.create("orders", 1) if losing is _deleted else None
    shop.send("orders", 0, 2)
    query.all_available()
    assert stream.lost == 6
    assert '"losses"' not in stream.checkpoint.ends[-1]


def test_a_run_that_dies_before_the_progress_of_its_batch_leaves_the_loss_counted(
    shop: Shop,
) -> None:
    stream = _trimmed(shop)
    stream.start().trigger()
    query = stream.start()
    assert not query.trigger()
    assert stream.lost == query.reader.reportLatestOffset()["#kmq"]["lost"] == 6


def test_a_loss_that_is_found_while_a_query_waits_is_counted_once_by_the_next_run(
    shop: Shop,
) -> None:
    stream = careless(shop, minOffsetsPerTrigger="20", maxTriggerDelay="1h")
    shop.send("orders", 0, 1)
    query = stream.start()
    query.trigger()
    shop.send("orders", 0, 9)
    shop.store.trim("orders", {0: 7})
    for _ in range(2):
        assert not query.trigger()
        assert query.reader.reportLatestOffset()["#kmq"]["lost"] == 6
    query = stream.start()
    query.all_available()
    assert (stream.lost, stream.sizes) == (6, [1, 3])


def test_losses_of_several_batches_add_up(shop: Shop) -> None:
    stream = _trimmed(shop)
    stream.start().trigger(Crash.AFTER_SINK)
    stream.start().all_available()
    for _ in range(2):
        shop.send("orders", 0, 5)
        shop.store.trim("orders", {0: shop.store.offsets("orders")[0][1] - 1})
        stream.start().all_available()
    assert (stream.lost, sum(stream.sizes)) == (6 + 4 + 4, 22 - 14)


def test_a_checkpoint_of_an_older_version_counts_on_from_its_last_losses(shop: Shop) -> None:
    stream = _trimmed(shop)
    stream.start().trigger()
    offset = json.loads(stream.checkpoint.ends[-1])
    del offset["#kmq"]["lost"]
    offset["#kmq"]["again"] = True
    stream.checkpoint.ends[-1] = json.dumps(offset)
    assert not stream.start().trigger()
    shop.send("orders", 0, 2)
    stream.start().all_available()
    assert stream.lost == 6


def test_a_loss_that_a_replay_finds_itself_is_counted_though_nothing_follows(shop: Shop) -> None:
    stream = careless(shop)
    shop.send("orders", 0, 10)
    stream.start().trigger(Crash.AFTER_WAL)
    shop.store.trim("orders", {0: 6})
    query = stream.start(available_now=True)
    query.all_available()
    assert (stream.sizes, stream.lost) == ([4, 0], 6)
    stream.start().all_available()
    assert (stream.sizes, stream.lost) == ([4, 0], 6)


def test_an_offset_keeps_its_losses_by_topic_and_partition(shop: Shop) -> None:
    stream = _trimmed(shop)
    query = stream.start()
    query.all_available()
    own = json.loads(stream.checkpoint.ends[-1])["#kmq"]
    assert (own["losses"], own["lost"]) == ({own["ids"]["orders"]: {"0": [[4, 10]]}}, 6)
    assert not query.trigger()


steps = st.lists(
    st.tuples(
        st.sampled_from(["send", "send", "trigger", "trim", "delete", "restart", *AFTER]),
        st.sampled_from(["t0", "t1"]),
        st.integers(0, 1),
        st.integers(1, 9),
    ),
    max_size=30,
)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps)
def test_whatever_fails_every_record_is_read_once_or_counted_as_lost_once(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str | Crash, str, int, int]]
) -> None:
    shop = Shop(tmp_path_factory.mktemp("any") / "shop")
    (stream, query), sent = careless_of_any(shop), 0
    for action, topic, partition, count in steps:
        if topic not in {each.name for each in shop.store.topics()}:
            shop.create(topic, 2)
        if action == "send":
            sent += len(shop.send(topic, partition, count))
        elif action == "trim":
            start, end = shop.store.offsets(topic)[partition]
            shop.store.trim(topic, {partition: min(start + count, end)})
        elif action == "delete":
            shop.delete(topic)
        else:
            query.trigger(action if isinstance(action, Crash) else None)
        if action == "restart":
            query.trigger()  # if it replayed a batch, what that found is counted with the next one
        if action == "restart" or isinstance(action, Crash):
            query = stream.start(maxOffsetsPerTrigger=str(count))
    query.all_available()
    assert sum(stream.sizes) + stream.lost == sent
    stream.stop()
    shop.close()
