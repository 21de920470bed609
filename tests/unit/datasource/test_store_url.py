"""Options of a bucket's client. Finds credentials that show, and ones that don't get there."""

from __future__ import annotations

import pickle

import pytest

import kmq_spark as kmq
from kmq_spark.datasource.options.sink_options import parse_sink_options
from kmq_spark.datasource.options.source_options import parse_source_options
from kmq_spark.datasource.store_url import storage_options
from kmq_storage.errors import InvalidRequestError, KmqError
from tests.support.s3 import S3Server
from tests.unit.datasource.engine import batch_reader


def _options(moto: S3Server) -> dict[str, str]:
    return {f"storage.{name}": value for name, value in moto.options().items()}


def test_they_reach_the_tasks_of_a_read(moto: S3Server) -> None:
    url = moto.new_url()
    with kmq.open(url, storage_options=moto.options()) as store, store.producer() as producer:
        store.create_topic("orders")
        producer.send("orders", b"1")
    options = {"path": url, "subscribe": "orders", **_options(moto)}
    reader = pickle.loads(pickle.dumps(batch_reader(options)))
    batches = [batch for task in reader.partitions() for batch in reader.read(task)]
    assert [batch.column("value").to_pylist() for batch in batches] == [[b"1"]]


def test_they_show_in_no_text() -> None:
    given = {"path": "s3://bucket/store", "storage.secret_access_key": "hush-hush", "topic": "t"}
    options = parse_sink_options(given)
    assert storage_options(options.url) == {"secret_access_key": "hush-hush"}
    for shown in (repr(options), str(options), repr(options.url), f"{options.url}"):
        assert "hush-hush" not in shown
    with pytest.raises(InvalidRequestError) as caught:
        parse_sink_options({**given, "tpic": "t"})
    assert "hush-hush" not in str(caught.value)


def test_names_and_values_are_those_of_open(moto: S3Server) -> None:
    given = {"path": moto.new_url(), "subscribe": "t", **_options(moto)}
    options = parse_source_options({**given, "storage.cache_bytes": "1000"})
    assert storage_options(options.url) == {**moto.options(), "cache_bytes": "1000"}
    for name, reason in (("cache_bytes", "a number of bytes"), ("acess_key", "acess_key")):
        wrong = batch_reader({**given, f"storage.{name}": "x"})
        with pytest.raises(KmqError, match=reason):
            wrong.partitions()
