"""kmq stores for the cases: made, filled, counted."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import kmq_spark as kmq
from benchmarks import dataset
from benchmarks.job import PARTITIONS, Job

TOPIC = "records"


def new_path(job: Job) -> Path:
    """A folder in the scratch folder that does not exist yet."""
    return job.path("stores", uuid.uuid4().hex)


@contextmanager
def fresh(
    job: Job, durability: str, *, maintenance: bool = True
) -> Iterator[tuple[kmq.Store, str]]:
    """An empty store with an empty topic, and its path; deleted at the end."""
    path = new_path(job)
    try:
        with kmq.open(path, durability=durability, maintenance=maintenance) as store:
            store.create_topic(TOPIC, partitions=PARTITIONS)
            yield store, str(path)
    finally:
        shutil.rmtree(path, ignore_errors=True)


def check(store: kmq.Store, rows: int) -> None:
    """Raise unless the topic holds that many records, for the figure would be worth nothing."""
    found = sum(end - start for start, end in store.offsets(TOPIC).values())
    if found != rows:
        raise RuntimeError(f"kmq holds {found} of {rows} records")


def filled_by_send(job: Job, rows: int) -> Path:
    """A store whose topic was written record by record: many small batches in the commit log."""
    path = new_path(job)
    with kmq.open(path, durability="os") as store:
        store.create_topic(TOPIC, partitions=PARTITIONS)
        with store.producer() as producer:
            for value, key in zip(dataset.values(rows), dataset.keys(rows), strict=True):
                producer.send(TOPIC, value, key)
        check(store, rows)
    return path


def filled_by_arrow(job: Job, rows: int, *, times: int = 1) -> Path:
    """A store whose topic was written in Arrow batches of 100,000 rows: few large ones."""
    path = new_path(job)
    with kmq.open(path, durability="os") as store:
        store.create_topic(TOPIC, partitions=PARTITIONS)
        with store.producer() as producer:
            batches = dataset.arrow_batches(rows, 100_000)
            for _ in range(times):
                for batch in batches:
                    producer.send_arrow(TOPIC, batch)
                producer.flush()
        check(store, rows * times)
    return path


def filled_with_columns(job: Job, rows: int) -> Path:
    """A store whose topic is typed, of 20 columns, and sealed."""
    path, batch = new_path(job), dataset.typed_batch(50_000)
    with kmq.open(path, durability="os", maintenance=False) as store:
        store.create_topic(TOPIC, partitions=PARTITIONS, schema=batch.schema)
        with store.producer() as producer:
            for number in range(rows // batch.num_rows):
                producer.send_arrow(TOPIC, batch, partition=number % PARTITIONS).result()
        store.seal()
        store.checkpoint()
        check(store, rows)
    return path
