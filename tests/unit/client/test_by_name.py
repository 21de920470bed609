"""Settings and counts by attribute and by name. Finds: a field that only one of the two has."""

from __future__ import annotations

import copy
import pickle

import pyarrow as pa
import pytest

import kmq_spark as kmq


def test_settings_of_a_topic_make_another_topic_like_it(store: kmq.Store):
    schema = pa.schema([("n", pa.int64())])
    made = store.create_topic("t", schema=schema, retention=60, cleanup="compact")
    assert (made.settings["retention"], made.settings["schema"]) == (60.0, schema)
    assert store.create_topic("u", **made.settings).settings == made.settings


def test_settings_of_a_queue_make_another_queue_like_it(store: kmq.Store):
    made = store.create_queue("q", order="key", backoff=(1, 2))
    assert made.settings["backoff"] == made.settings.backoff == (1.0, 2.0)
    assert store.create_queue("r", **made.settings).settings == made.settings


def test_counts_of_a_queue_have_names(store: kmq.Store):
    store.create_queue("q")
    with store.producer() as producer:
        producer.send_to_queue("q", b"v").result(10)
    stats = store.queue("q").stats()
    assert stats["ready"] == stats.ready == 1
    assert dict(stats) == {name: getattr(stats, name) for name in stats}
    assert (len(stats), sum(stats.values())) == (7, 1)
    assert copy.deepcopy(stats) == pickle.loads(pickle.dumps(stats)) == stats
    with pytest.raises(KeyError, match="redy"):
        stats["redy"]
