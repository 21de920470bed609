"""Finds bounds of batch reads that choose other records than Kafka's source would."""

from __future__ import annotations

import json
import pickle
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import kmq_spark as kmq
from kmq_storage.errors import CorruptionError, InvalidRequestError
from tests.spark.shop import Shop
from tests.unit.datasource.engine import batch_reader

NOON = datetime(2024, 5, 6, 12, tzinfo=UTC)
#: Records of each partition, a second apart from noon on.
ROWS = 30

Offset = tuple[int, int]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Three partitions of timed records, sealed in segments of ten, the last ten in the log."""
    path = tmp_path_factory.mktemp("timed") / "shop"
    with kmq.open(path, durability="os", maintenance=False) as store:
        store.create_topic("orders", partitions=3)
        store.create_topic("empty")
        with store.producer(linger=0) as producer:
            for first in range(0, ROWS, 10):
                if first:
                    store.seal()
                for partition in range(3):
                    times = [NOON + timedelta(seconds=first + n) for n in range(10)]
                    producer.send_batch(
                        "orders", [b"x"] * 10, partition=partition, timestamps=times
                    ).result(timeout=30)
    return str(path)


def _read(url: str, **options: str) -> list[Offset]:
    given = {"path": url, **({} if "assign" in options else {"subscribe": "orders"}), **options}
    reader = batch_reader(given)
    return [
        place
        for task in pickle.loads(pickle.dumps(reader.partitions()))
        for batch in reader.read(task)
        for place in zip(*batch.select(["partition", "offset"]).to_pydict().values(), strict=True)
    ]


def _between(*bounds: tuple[int, int]) -> list[Offset]:
    return [(p, offset) for p, span in enumerate(bounds) for offset in range(*span)]


def _ms(seconds: float) -> int:
    return round((NOON.timestamp() + seconds) * 1000)


def _by_partition(*points: object) -> str:
    return json.dumps({"orders": {str(p): point for p, point in enumerate(points)}})


def _iso(seconds: int) -> str:
    return (NOON + timedelta(seconds=seconds)).isoformat()


MIDDLE = [(10, 20)] * 3
LATE = str(2**63 - 1)
READS = {
    "times of each partition": (
        {
            "startingOffsetsByTimestamp": _by_partition(_ms(10), _ms(5), _ms(12.5)),
            "endingOffsetsByTimestamp": _by_partition(_ms(20), _ms(20), _ms(25)),
        },
        [(10, 20), (5, 20), (13, 25)],
    ),
    "start by times, end by offsets": (
        {
            "startingOffsetsByTimestamp": _by_partition(_ms(10), _ms(10), _ms(10)),
            "endingOffsets": _by_partition(20, 20, 20),
        },
        MIDDLE,
    ),
    "start by offsets, end by times": (
        {
            "startingOffsets": _by_partition(10, 10, 10),
            "endingOffsetsByTimestamp": _by_partition(_ms(20), _ms(20), _ms(20)),
        },
        MIDDLE,
    ),
    "only a start": (
        {"startingOffsetsByTimestamp": _by_partition(_ms(10), _ms(20), _ms(29))},
        [(10, 30), (20, 30), (29, 30)],
    ),
    "only an end": (
        {"endingOffsetsByTimestamp": _by_partition(_ms(10), _ms(0), _ms(1))},
        [(0, 10), (0, 0), (0, 1)],
    ),
    "one time for all": (
        {"startingTimestamp": str(_ms(10)), "endingTimestamp": str(_ms(20))},
        MIDDLE,
    ),
    "iso text": ({"startingTimestamp": _iso(10), "endingTimestamp": _iso(20)}, MIDDLE),
    "mixed forms": (
        {
            "startingOffsetsByTimestamp": _by_partition(_iso(10), str(_ms(10)), _ms(10)),
            "endingTimestamp": _iso(20),
        },
        MIDDLE,
    ),
    "a global time before times, times before offsets": (
        {
            "startingTimestamp": str(_ms(10)),
            "startingOffsetsByTimestamp": _by_partition(_ms(0), _ms(0), _ms(0)),
            "startingOffsets": "latest",
            "endingOffsetsByTimestamp": _by_partition(_ms(20), _ms(20), _ms(20)),
            "endingOffsets": _by_partition(1, 1, 1),
        },
        MIDDLE,
    ),
    "an end after the last record": ({"endingTimestamp": LATE}, [(0, ROWS)] * 3),
    "an end in one partition after the last record": (
        {"endingOffsetsByTimestamp": _by_partition(_ms(10), int(LATE), _ms(10))},
        [(0, 10), (0, ROWS), (0, 10)],
    ),
    "a start after the last record that may be": (
        {
            "startingOffsetsByTimestamp": _by_partition(_ms(10), int(LATE), _ms(10)),
            "startingOffsetsByTimestampStrategy": "latest",
        },
        [(10, ROWS), (0, 0), (10, ROWS)],
    ),
    "before everything": ({"startingTimestamp": "0"}, [(0, ROWS)] * 3),
    "days that are over": ({"endingTimestamp": "-1h"}, [(0, ROWS)] * 3),
    "some offsets and the rest": (
        {
            "startingOffsets": '{"orders":{"1":23,"*":-2}}',
            "endingOffsets": '{"orders":{"0":3,"*":-1}}',
        },
        [(0, 3), (23, ROWS), (0, ROWS)],
    ),
    "some times and the rest": (
        {"startingOffsetsByTimestamp": json.dumps({"orders": {"1": _ms(5), "*": _iso(29)}})},
        [(29, ROWS), (5, ROWS), (29, ROWS)],
    ),
    "some partitions": (
        {"partitions": "0,2-9", "endingTimestamp": _iso(1)},
        [(0, 1), (0, 0), (0, 1)],
    ),
    "some of the assigned": (
        {"assign": '{"orders":[0,1]}', "partitions": "1-2"},
        [(0, 0), (0, ROWS), (0, 0)],
    ),
}


@pytest.mark.parametrize(("options", "bounds"), READS.values(), ids=READS.keys())
def test_bounds_choose_the_records_between_them(
    url: str, options: dict[str, str], bounds: list[tuple[int, int]]
) -> None:
    assert _read(url, **options) == _between(*bounds)


REFUSED = {
    "no record so late": (
        {"startingOffsetsByTimestamp": _by_partition(_ms(1), _ms(99), _ms(1))},
        r"orders-1 has no record at or after 2024-05-06T12:01:39\+00:00; set startingOffsetsByT",
    ),
    "nothing in any partition": ({"startingTimestamp": LATE}, "no offset matched, orders-0 has no"),
    "nothing in the last minutes": ({"startingTimestamp": "-2h30m"}, "no offset matched, orders-0"),
    "times for too few": (
        {"startingOffsetsByTimestamp": _by_partition(_ms(1), _ms(1))},
        r"specified \{'orders': \[0, 1\]\}, assigned \{'orders': \[0, 1, 2\]\}",
    ),
    "times for too many": (
        {"endingOffsetsByTimestamp": _by_partition(*[_ms(1)] * 4)},
        r"specified \{'orders': \[0, 1, 2, 3\]\}, assigned \{'orders': \[0, 1, 2\]\}",
    ),
    "a partition too many beside the rest": (
        {"startingOffsets": '{"orders":{"7":23,"*":-2}}'},
        r"specified \{'orders': \[0, 1, 2, 7\]\}",
    ),
    "a topic that is not read": (
        {"startingOffsets": '{"orders":{"*":-2},"empty":{"*":-2}}'},
        "must name every partition that is read and no other",
    ),
    "start and end of other partitions": (
        {"startingOffsets": _by_partition(0, 0, 0), "endingOffsets": _by_partition(0, 0)},
        r"name different partitions of orders: \[0, 1, 2\] and \[0, 1\]; name every one",
    ),
    "start beyond the end": (
        {"startingOffsets": _by_partition(1, 0, 0), "endingOffsets": _by_partition(0, 0, 0)},
        "orders-0: startingOffsets 1 is beyond endingOffsets 0",
    ),
    "start beyond an end by time": (
        {"startingOffsets": _by_partition(3, 0, 0), "endingTimestamp": str(_ms(1))},
        "orders-0: startingOffsets 3 is beyond endingTimestamp 1",
    ),
    "start by time beyond the end": (
        {"startingTimestamp": str(_ms(9)), "endingOffsets": _by_partition(9, 8, 9)},
        r"orders-1: startingTimestamp 9 is beyond endingOffsets 8 \(the offsets that the times",
    ),
    "a start by time after the end": (
        {"startingTimestamp": str(_ms(40)), "endingTimestamp": str(_ms(39))},
        r"startingTimestamp 2024-\S+:40\+00:00 is after endingTimestamp 2024-\S+:39\+00:00: no rec",
    ),
    "an end that is further in the past than the start": (
        {"startingTimestamp": "-1h", "endingTimestamp": _iso(0)},
        "is after endingTimestamp 2024-05-06T12:00:00",
    ),
    "start of an empty topic": (
        {"subscribe": "empty", "startingOffsets": '{"empty":{"0":1}}'},
        "empty-0: startingOffsets 1 is beyond endingOffsets 0",
    ),
    "the rest at latest": (
        {"startingOffsets": '{"orders":{"1":0,"*":-1}}'},
        "'startingOffsets' is latest for orders-0, orders-2",
    ),
}


@pytest.mark.parametrize(("options", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_bounds_that_fit_nothing_are_refused(
    url: str, options: dict[str, str], message: str
) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        _read(url, **options)


TIME_FORMS = r"a time is milliseconds since 1970 .*, ISO text .*, or -10m, -2h30m \(before now\)"


@pytest.mark.parametrize(
    ("option", "forms"),
    [
        ("startingOffsets", "-1 is latest, -2 earliest"),
        ("endingOffsets", "-1 is latest"),
        ("startingOffsetsByTimestamp", TIME_FORMS),
        ("endingOffsetsByTimestamp", TIME_FORMS),
    ],
)
def test_who_names_too_few_partitions_is_told_what_the_option_takes_for_them(
    url: str, option: str, forms: str
) -> None:
    with pytest.raises(
        InvalidRequestError, match=rf'no other \("\*" stands for the rest; {forms}\): spec'
    ):
        _read(url, **{option: _by_partition(1, 1)})


@pytest.mark.parametrize("text", ["earliest", '{"orders":{"0":-2}}', '{"orders":[0]}'])
def test_an_end_that_is_refused_is_not_told_of_earliest(url: str, text: str) -> None:
    with pytest.raises(InvalidRequestError, match=r"\(-1 is latest, \* the rest\)"):
        _read(url, endingOffsets=text)


def test_an_instant_of_iso_text_may_have_a_small_z(url: str) -> None:
    small, large = ("2024-05-06t12:00:20z", "2024-05-06T12:00:20Z")
    assert _read(url, endingTimestamp=small) == _read(url, endingTimestamp=large) != _read(url)
    times = json.dumps({"orders": {"*": small}})
    assert _read(url, endingOffsetsByTimestamp=times) == _between(*[(0, 20)] * 3)


def test_an_instant_between_two_microseconds_leaves_the_first_of_them_before_it(url: str) -> None:
    after = f"{NOON:%Y-%m-%dT%H:%M}:20.000000001+00:00"
    assert _read(url, endingTimestamp=after) == _between(*[(0, 21)] * 3)
    assert _read(url, startingTimestamp=after) == _between(*[(21, ROWS)] * 3)
    same = after.replace("000001+", "000000+")
    assert _read(url, startingTimestamp=same) == _between(*[(20, ROWS)] * 3)


@pytest.mark.parametrize("text", ["9999-12-31T23:59:59-12:00", "0001-01-01T00:00:00+12:00"])
def test_an_instant_may_be_outside_of_the_calendar_in_utc(url: str, text: str) -> None:
    late = text.startswith("9")
    assert _read(url, endingTimestamp=text) == _between(*[(0, ROWS if late else 0)] * 3)


def test_segments_that_can_not_match_are_not_opened(url: str, tmp_path: Path) -> None:
    store = shutil.copytree(url, tmp_path / "shop")
    for file in store.glob("segments/*/*/00000000000000000000-*.arrow"):
        file.unlink()
    times = {"startingTimestamp": _iso(12), "endingTimestamp": _iso(15)}
    assert _read(str(store), **times) == _between(*[(12, 15)] * 3)
    with pytest.raises(CorruptionError, match="is missing"):
        _read(str(store), **times | {"startingTimestamp": _iso(5)})


def test_a_relative_time_counts_back_from_planning(shop: Shop) -> None:
    with shop.store.producer() as producer:
        producer.send("orders", b"old", timestamp=NOON, partition=0)
    sent = shop.send("orders", 0, 3)
    options = {"startingTimestamp": "-1h", "startingOffsetsByTimestampStrategy": "latest"}
    assert _read(shop.url, **options) == [place[1:] for place in sent]


def test_an_end_that_is_damaged_does_not_pass_for_a_shorter_log(shop: Shop) -> None:
    sent = [place[1:] for place in shop.send("orders", 0, 3)]
    shop.send("orders", 0, 2)
    lost = shop.lsn()
    shop.send("orders", 1, 1)
    shop.damage_commit(lost)
    whole = ({}, {"endingOffsets": "latest"}, {"endingTimestamp": LATE})
    for options in (*whole, {"endingOffsets": '{"orders":{"*":-1}}'}):
        with pytest.raises(CorruptionError):
            _read(shop.url, **options)
    assert _read(shop.url, endingOffsets=_by_partition(3, 0, 0)) == sent
