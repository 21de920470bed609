"""Hostile and mistaken input to every call: the contracted error, and nothing written.

Finds: names that become paths, types that pass, options that are ignored, and errors that come
after a commit.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import kmq_spark as kmq
from tests.unit.client.stored import lsn

NAMES = [
    "", ".", "..", "../x", "a/b", "/etc/passwd", "a\\b", "nul\0", "new\nline", "a b", "ünï", "🚀",
    "a:b", "*", "~", "$HOME", "x" * 250, "x" * 300, "a\u202eb", "tab\t", "trailing\n",
    None, 5, b"bytes", ["list"], "lone\ud800",
]  # fmt: skip
#: Calls that take a topic's name.
TOPIC_CALLS: dict[str, Callable[[kmq.Store, Any], object]] = {
    "create_topic": lambda store, name: store.create_topic(name),
    "send": lambda store, name: _producing(store, lambda p: p.send(name, b"v")),
    "send_batch": lambda store, name: _producing(store, lambda p: p.send_batch(name, [b"v"])),
    "send_arrow": lambda store, name: _producing(store, lambda p: p.send_arrow(name, _rows())),
}
#: Calls that look a topic up: what can't be a topic's name is a topic that isn't there.
LOOKUPS: dict[str, Callable[[kmq.Store, Any], object]] = {
    "describe_topic": lambda store, name: store.describe_topic(name),
    "offsets": lambda store, name: store.offsets(name),
    "offsets_for_time": lambda store, name: store.offsets_for_time(name, datetime.now(UTC)),
    "alter_topic": lambda store, name: store.alter_topic(name, capacity=5),
    "add_partitions": lambda store, name: store.add_partitions(name, 5),
    "delete_topic": lambda store, name: store.delete_topic(name),
    "read": lambda store, name: store.read(name),
    "consumer": lambda store, name: store.consumer(topics=[name]),
    "subscribe": lambda store, name: store.consumer().subscribe([name]),
    "assign": lambda store, name: store.consumer().assign({name: [0]}),
    "seek": lambda store, name: store.consumer().seek(name, 0, 0),
    "set_group_offsets": lambda store, name: store.set_group_offsets("g", {name: {0: 0}}),
    "set_group_offsets topics": lambda store, name: store.set_group_offsets(
        "g", "earliest", topics=[name]
    ),
}
#: Calls that take a group's name.
GROUP_CALLS: dict[str, Callable[[kmq.Store, Any], object]] = {
    "consumer": lambda store, name: store.consumer(name),
    "set_group_offsets": lambda store, name: store.set_group_offsets(name, {"t": {0: 0}}),
    "copy_group": lambda store, name: store.copy_group("g", name),
}


def _rows() -> Any:
    import pyarrow as pa

    return pa.table({"value": [b"v"]})


def _producing(store: kmq.Store, call: Callable[[kmq.Producer], Any]) -> object:
    with store.producer() as producer:
        return call(producer).result(10)


def _hashable(name: object) -> bool:
    return not isinstance(name, list)


@pytest.fixture(scope="module", params=["memory", "local"])
def shop(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[kmq.Store]:
    """One store with a topic and a group for all tests: what they do changes nothing."""
    local = request.param == "local"
    url = tmp_path_factory.mktemp("shop") if local else f"memory://{uuid.uuid4().hex}"
    with kmq.open(url) as store:
        store.create_topic("t", partitions=2)
        _producing(store, lambda producer: producer.send("t", b"v", partition=0))
        store.set_group_offsets("g", {"t": {0: 1}})
        yield store


@pytest.mark.parametrize("name", NAMES, ids=ascii)
@pytest.mark.parametrize("call", TOPIC_CALLS)
def test_no_call_takes_a_name_that_a_topic_cannot_have(shop: kmq.Store, call: str, name: object):
    before = lsn(shop)
    with pytest.raises(kmq.InvalidRequestError, match="topic name"):
        TOPIC_CALLS[call](shop, name)
    assert lsn(shop) == before


@pytest.mark.parametrize("name", [*filter(_hashable, NAMES), "missing"], ids=ascii)
@pytest.mark.parametrize("call", LOOKUPS)
def test_no_call_finds_a_topic_that_cannot_be(shop: kmq.Store, call: str, name: object):
    before = lsn(shop)
    with pytest.raises((kmq.InvalidRequestError, kmq.NotFoundError, kmq.IllegalStateError)):
        LOOKUPS[call](shop, name)
    assert lsn(shop) == before


@pytest.mark.parametrize("call", sorted(LOOKUPS.keys() - {"assign", "set_group_offsets"}))
def test_no_call_finds_a_topic_that_no_mapping_can_have(shop: kmq.Store, call: str):
    with pytest.raises((kmq.InvalidRequestError, kmq.NotFoundError, kmq.IllegalStateError)):
        LOOKUPS[call](shop, ["list"])


@pytest.mark.parametrize("name", [*[n for n in NAMES if n is not None], "x" * 245], ids=ascii)
@pytest.mark.parametrize("call", GROUP_CALLS)
def test_no_call_takes_a_name_that_a_group_cannot_have(shop: kmq.Store, call: str, name: object):
    before = lsn(shop)
    with pytest.raises(kmq.InvalidRequestError, match="group name"):
        GROUP_CALLS[call](shop, name)
    assert lsn(shop) == before


@pytest.mark.parametrize("name", ["x", "x" * 249, "%DLQ%g", "...", "a.b_c-d%", "-", "CON"])
def test_odd_but_allowed_names_are_data_and_never_paths(shop: kmq.Store, name: str):
    shop.create_topic(name)
    _producing(shop, lambda producer: producer.send(name, b"v"))
    assert shop.describe_topic(name).rows == 1
    with shop.consumer(name[:244], topics=[name]) as consumer:
        assert len(consumer.consume()) == 1
        consumer.commit()
    assert shop.describe_group(name[:244]).committed == {name: {0: 1}}


SETTINGS = [
    {"partitions": 0}, {"partitions": -1}, {"partitions": 1.0}, {"partitions": "3"},
    {"partitions": True}, {"partitions": None}, {"partitions": 10**9},
    {"retention": -1}, {"retention": 0}, {"retention": "7d"}, {"retention": True},
    {"retention": float("nan")}, {"retention": float("inf")}, {"retention": 1e308},
    {"uniq_window": 1e308},
    {"retention_bytes": 0}, {"retention_bytes": 1.5}, {"retention_bytes": "64m"},
    {"cleanup": "both"}, {"cleanup": None}, {"cleanup": ["delete"]},
    {"capacity": 0}, {"capacity": -5}, {"capacity": 1.5}, {"capacity": "10"}, {"capacity": True},
    {"max_record_bytes": 0}, {"max_record_bytes": None}, {"max_record_bytes": 2**40},
    {"uniq_window": None}, {"uniq_window": "2m"}, {"uniq_window": -1},
    {"schema": "not a schema"},
]  # fmt: skip


@pytest.mark.parametrize("settings", SETTINGS, ids=repr)
def test_a_wrong_setting_makes_no_topic(shop: kmq.Store, settings: dict[str, Any]):
    before = lsn(shop)
    with pytest.raises(kmq.InvalidRequestError, match=next(iter(settings))):
        shop.create_topic("new", **settings)
    if "partitions" not in settings and "schema" not in settings:
        with pytest.raises(kmq.InvalidRequestError, match=next(iter(settings))):
            shop.alter_topic("t", **settings)
    assert lsn(shop) == before


@pytest.mark.parametrize(
    ("call", "error"),
    [
        ("create_topic('x', retention_time=5)", TypeError),
        ("create_topic('x', 3)", TypeError),
        ("alter_topic('t', capacty=5)", "did you mean 'capacity'"),
        ("alter_topic('t', partitions=5)", "partitions"),
        ("add_partitions('t', 1)", "partitions"),
        ("add_partitions('t', 2.5)", "partitions"),
        ("add_partitions('t', '5')", "partitions"),
        ("offsets_for_time('t', 5)", "when"),
        ("offsets_for_time('t', '2026-01-01')", "when"),
        ("offsets_for_time('t', datetime(2026, 1, 1))", "when"),
        ("read('t', columns=['vlaue'])", "did you mean 'value'"),
        ("read('t', columns=[5])", "column"),
        ("read('t', columns=5)", "columns must be names"),
        ("read('t', columns=[])", "column"),
        ("read('t', batch_rows=0)", "batch_rows"),
        ("read('t', batch_rows='5')", "batch_rows"),
        ("read('t', start={0: '0'})", "offset"),
        ("read('t', start=5)", "start"),
        ("read('t', end=5)", "end"),
        ("read('t', start='earliest')", "start"),
        ("read('t', end=datetime(2026, 1, 1))", "end"),
        ("read('t', partitions=['0'])", "partition"),
        ("read('t', partitions=[0.0])", "partition"),
        ("read('t', partitions=5)", "partitions"),
        ("set_group_offsets('g', 'newest')", "offsets"),
        ("set_group_offsets('g', 5)", "offsets"),
        ("set_group_offsets('g', {'t': {0: '1'}})", "offset"),
        ("set_group_offsets('g', {'t': {0: 1.0}})", "offset"),
        ("set_group_offsets('g', {'t': {0: True}})", "offset"),
        ("set_group_offsets('g', {'t': 5})", "offsets"),
        ("set_group_offsets('g', 'latest', topics=[])", "topics"),
        ("set_group_offsets('g', 'latest', topics=5)", "topics"),
        ("set_group_offsets('g', {'t': {0: 1}}, topics=['t'])", "topics goes with"),
        ("set_group_offsets('g', datetime(2026, 1, 1))", "offsets"),
        ("commits('1')", "start"),
        ("consumer('g2', auto_offset_reset='newest')", "auto_offset_reset"),
        ("consumer(auto_commit=True)", "auto_commit"),
        ("consumer('g2', topics=['t'], auto_commit='false')", "auto_commit"),
        ("create_topic('x', exist_ok='no')", "exist_ok"),
        ("verify(deep='no')", "deep"),
        ("repair(drop_damaged=1)", "drop_damaged"),
        ("consumer('g2', assignor='best')", "assignor"),
        ("consumer('g2', name='../m')", "name"),
        ("consumer('g2', max_poll_interval='5')", "max_poll_interval"),
        ("consumer('g2', session_timeout=0)", "session_timeout must be .* above 0"),
        ("consumer('g2', topics=['t'], pattern='t')", "pattern"),
        ("consumer('g2', topics=[])", "topics"),
        ("consumer('g2', topics=5)", "topics"),
        ("consumer(pattern='(')", "pattern"),
        ("consumer(pattern=5)", "pattern"),
        ("consumer(topic='t')", TypeError),
    ],
)
def test_a_wrong_argument_is_refused_by_name_and_changes_nothing(
    shop: kmq.Store, call: str, error: str | type[Exception]
):
    before = lsn(shop)
    wanted, text = (kmq.InvalidRequestError, error) if isinstance(error, str) else (error, None)
    with pytest.raises(wanted, match=text):
        eval(f"shop.{call}", {"shop": shop, "datetime": datetime})
    assert lsn(shop) == before


#: What has no one truth: whoever compares it with a word gets no answer.
UNDECIDED = [np.array([1, 2]), pd.Series(["a", "b"]), pd.DataFrame({"a": [1]}), pd.NA]
#: Calls that take a word.
WORD_CALLS: dict[str, Callable[[kmq.Store, Any], object]] = {
    "cleanup": lambda store, value: store.create_topic("new", cleanup=value),
    "compression": lambda store, value: store.create_topic("new", compression=value),
    "new cleanup": lambda store, value: store.alter_topic("t", cleanup=value),
    "new compression": lambda store, value: store.alter_topic("t", compression=value),
    "order": lambda store, value: store.create_queue("new", order=value),
    "producer name": lambda store, value: store.producer(name=value),
    "id": lambda store, value: store.producer(name="n", transactional_id=value),
    "offsets": lambda store, value: store.set_group_offsets("g", value),
}


@pytest.mark.parametrize("call", WORD_CALLS.values(), ids=list(WORD_CALLS))
@pytest.mark.parametrize("value", UNDECIDED, ids=lambda value: type(value).__name__)
def test_an_array_in_place_of_a_word_is_refused(
    shop: kmq.Store, call: Callable[[kmq.Store, Any], object], value: object
):
    before = lsn(shop)
    with pytest.raises(kmq.InvalidRequestError, match=r"must be"):
        call(shop, value)
    assert lsn(shop) == before


@pytest.mark.parametrize(
    ("call", "error"),
    [
        ("consume(0)", kmq.InvalidRequestError),
        ("consume('5')", kmq.InvalidRequestError),
        ("consume_arrow(-1)", kmq.InvalidRequestError),
        ("poll('1')", kmq.InvalidRequestError),
        ("poll(-1.0)", kmq.InvalidRequestError),
        ("poll(10**400)", kmq.InvalidRequestError),
        ("consume(timeout='1')", kmq.InvalidRequestError),
        ("consume(timeout=float('nan'))", kmq.InvalidRequestError),
        ("seek('t', 0, -1)", kmq.OffsetOutOfRangeError),
        ("seek('t', 0, 2)", kmq.OffsetOutOfRangeError),
        ("seek('t', 0, '1')", kmq.InvalidRequestError),
        ("seek('t', 0, 1.0)", kmq.InvalidRequestError),
        ("seek('t', 9, 0)", kmq.NotFoundError),
        ("seek('nowhere', 0, 0)", kmq.NotFoundError),
        ("seek_to_time(5)", kmq.InvalidRequestError),
        ("seek_to_time(datetime(2026, 1, 1))", kmq.InvalidRequestError),
        ("seek_to_end({'t': [9]})", (kmq.NotFoundError, kmq.IllegalStateError)),
        ("pause({'nowhere': [0]})", (kmq.NotFoundError, kmq.IllegalStateError)),
        ("pause(['t'])", kmq.InvalidRequestError),
        ("assign(['t'])", kmq.InvalidRequestError),
        ("assign({'t': 0})", kmq.InvalidRequestError),
        ("assign({'t': ['0']})", kmq.InvalidRequestError),
        ("assign({'t': [9]})", kmq.NotFoundError),
        ("subscribe()", kmq.InvalidRequestError),
        ("subscribe([])", kmq.InvalidRequestError),
        ("subscribe(['t'], on_assign=5)", kmq.InvalidRequestError),
        ("commit({'t': {0: 2}})", kmq.OffsetOutOfRangeError),
        ("commit({'t': {0: -1}})", kmq.OffsetOutOfRangeError),
        ("commit({'t': {0: '1'}})", kmq.InvalidRequestError),
        ("commit({'t': {0: 1.0}})", kmq.InvalidRequestError),
        ("commit({'t': {9: 0}})", kmq.NotFoundError),
        ("commit({'nowhere': {0: 0}})", kmq.NotFoundError),
        ("commit(5)", kmq.InvalidRequestError),
        ("commit({'t': 5})", kmq.InvalidRequestError),
    ],
)
def test_a_wrong_call_of_a_consumer_changes_nothing(shop: kmq.Store, call: str, error: Any):
    with shop.consumer("g", topics=["t"]) as consumer:
        before, position = lsn(shop), consumer.position()
        with pytest.raises(error):
            eval(f"consumer.{call}", {"consumer": consumer, "datetime": datetime})
        assert consumer.position() == position
        assert consumer.assignment() == {"t": [0, 1]}
        assert lsn(shop) == before


@pytest.mark.parametrize(
    ("url", "error"),
    [
        ("", kmq.InvalidRequestError), ("nul\0", kmq.InvalidRequestError),
        (None, kmq.InvalidRequestError), (5, kmq.InvalidRequestError),
        (b"bytes", kmq.InvalidRequestError), ("ftp://host/x", kmq.InvalidRequestError),
        ("memoryy://x", "did you mean 'memory'"), ("file://otherhost/x", kmq.InvalidRequestError),
        ("memory://", kmq.InvalidRequestError), ("file://", kmq.InvalidRequestError),
        ("http://x", kmq.InvalidRequestError), ("s3://a:b@bucket/x", "credentials"),
        ("s3://b/x?key=k", "query"),
    ],
    ids=ascii,
)  # fmt: skip
def test_a_url_that_is_no_store_is_refused(
    url: Any, error: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    wanted, text = (kmq.InvalidRequestError, error) if isinstance(error, str) else (error, None)
    with pytest.raises(wanted, match=text):
        kmq.open(url)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "options",
    [{"durability": "none"}, {"durability": None}, {"storage_options": {"key": "x"}},
     {"storage_options": 5}, {"create": "yes"}, {"read_only": "false"}, {"maintenance": 0}],
    ids=repr,
)  # fmt: skip
def test_a_wrong_option_of_open_makes_no_store(tmp_path: Path, options: dict[str, Any]):
    with pytest.raises(kmq.InvalidRequestError):
        kmq.open(tmp_path / "store", **options)
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_keyword_of_open_is_a_type_error(tmp_path: Path):
    with pytest.raises(TypeError):
        kmq.open(tmp_path / "store", readonly=True)  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        kmq.open(tmp_path / "store", True)  # type: ignore[misc]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "call",
    [
        lambda store: store.consumer("g9", pattern=b"t"),
        lambda store: store.describe_group(["x"]),
        lambda store: store.copy_group(["x"], "y"),
        lambda store: store.copy_group("y", ["x"]),
        lambda store: store.delete_group(["x"]),
    ],
    ids=["pattern", "describe", "source", "target", "delete"],
)
def test_names_of_groups_and_patterns_that_are_no_text_are_refused(
    store: kmq.Store, call: Callable[[kmq.Store], object]
):
    before = lsn(store)
    with pytest.raises(kmq.InvalidRequestError, match="text"):
        call(store)
    assert lsn(store) == before
