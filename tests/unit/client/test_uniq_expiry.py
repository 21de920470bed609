"""The end of a window of deduplication: what nobody needs any more is forgotten everywhere.

Finds: texts of a topic that gets no more of them in every checkpoint, and a longer window in which
one process knows a text that another does not.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import kmq_spark as kmq
from kmq_spark.client.opening import open_store
from tests.support.clock import Clock

_WINDOW = 1000.0


def _send(store: kmq.Store, uniq: str) -> kmq.RecordMetadata:
    with store.producer() as producer:
        return producer.send("t", b"v", uniq=uniq).result()


def _later(store: kmq.Store, clock: Clock) -> None:
    """Commit something else when the window is over."""
    clock.pass_seconds(_WINDOW + 100)
    store.create_topic("other", partitions=1)


def test_a_checkpoint_has_no_texts_whose_window_is_over(tmp_path: Path, clock: Clock):
    with open_store(str(tmp_path / "s"), environment=clock.environment) as store:
        store.create_topic("t", uniq_window=_WINDOW)
        assert [_send(store, f"{n}").duplicate for n in range(3)] == [False] * 3
        _later(store, clock)
        store.checkpoint()
    with open_store(str(tmp_path / "s"), environment=clock.environment) as store:
        assert not store.log.refresh().uniqs
        assert not _send(store, "1").duplicate
        assert _send(store, "1").duplicate


@pytest.mark.parametrize("checkpoint", [True, False])
def test_a_longer_window_brings_back_no_text_whose_window_was_over(
    tmp_path: Path, clock: Clock, checkpoint: bool
):
    with open_store(str(tmp_path / "s"), environment=clock.environment) as store:
        store.create_topic("t", uniq_window=_WINDOW)
        _send(store, "old")
        clock.pass_seconds(_WINDOW / 2)
        _send(store, "new")
        clock.pass_seconds(_WINDOW / 2 + 100)
        store.create_topic("other")
        if checkpoint:
            store.checkpoint()
    with open_store(str(tmp_path / "s"), environment=clock.environment) as store:
        store.alter_topic("t", uniq_window=10 * _WINDOW)
        assert [_send(store, uniq).duplicate for uniq in ("old", "new")] == [False, True]


def test_a_checkpoint_has_the_texts_of_several_topics(tmp_path: Path):
    with kmq.open(tmp_path / "s") as store, store.producer() as producer:
        for topic in ("t", "u", "w"):
            store.create_topic(topic, partitions=3)
        sent = [
            (topic, f"{n}", producer.send(topic, b"v", uniq=f"{n}", partition=n % 3).result())
            for n in range(6)
            for topic in ("t", "u")
        ]
        store.checkpoint()
    with kmq.open(tmp_path / "s") as store, store.producer() as producer:
        for topic, uniq, place in sent:
            again = producer.send(topic, b"v", uniq=uniq).result()
            assert again.duplicate
            assert again[:3] == place[:3]
            assert not producer.send("w", b"v", uniq=topic + uniq).result().duplicate
