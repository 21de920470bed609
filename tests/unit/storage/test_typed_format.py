"""Typed topics in the log: the definition, the flags, and what an older or broken state may see."""

from __future__ import annotations

import json
import uuid
from base64 import b64decode
from collections.abc import Sequence

import pyarrow as pa
import pytest

from kmq_storage.errors import ConflictError, CorruptionError
from kmq_storage.format.entries import RecordsEntry, TopicEntry
from kmq_storage.format.layout import Layout
from kmq_storage.format.records import KEY, TOMBSTONES, TYPED, columns_of, keys_of
from kmq_storage.format.typed import (
    VERSIONS_MAX,
    encode_schema,
    stored_columns,
    typed_schema,
    version_of,
    versioned,
)
from kmq_storage.log.binding.binding import Unit
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.model import Commit
from kmq_storage.objects.memory import memory_disk
from kmq_storage.topics import alter_topic, create_topic
from tests.support.storage import open_log

SCHEMA = pa.schema([pa.field("key", pa.int8(), nullable=False), ("text", pa.string_view())])


@pytest.fixture
def log() -> CommitLog:
    """A log in memory with a typed topic `t`."""
    made = open_log(memory_disk(uuid.uuid4().hex))
    create_topic(made, "t", 1, {"schema": SCHEMA}, exist_ok=False)
    return made


def test_the_definition_holds_arrow_schema_messages_in_base64(log: CommitLog):
    (commit,) = log.commits(1)
    (entry,) = commit.entries
    assert isinstance(entry, TopicEntry)
    (encoded,) = json.loads(entry.payload())["settings"]["schemas"]
    assert pa.ipc.read_schema(pa.py_buffer(b64decode(encoded))) == SCHEMA


def test_an_untyped_definition_has_no_word_of_schemas():
    log = open_log(memory_disk(uuid.uuid4().hex))
    create_topic(log, "t", 1, {}, exist_ok=False)
    (commit,) = log.commits(1)
    assert "schemas" not in commit.entries[0].settings


def test_versions_of_a_schema_are_only_added(log: CommitLog):
    topic = log.refresh().topic("t")
    for schemas in ([], [encode_schema(pa.schema([("other", pa.int8())]))]):
        settings = topic.settings.to_json() | {"schemas": schemas}
        with pytest.raises(ConflictError, match="changed by somebody else meanwhile"):
            log.commit([Unit((TopicEntry(topic.id, "t", 1, settings),))])
    assert log.refresh().topic("t").settings.schema == SCHEMA


def test_a_change_that_another_one_overtook_is_made_again(
    log: CommitLog, monkeypatch: pytest.MonkeyPatch
):
    second = SCHEMA.append(pa.field("n", pa.int8()))
    commit = log.commit

    def overtaken(units: Sequence[Unit]) -> Commit:
        monkeypatch.setattr(log, "commit", commit)
        alter_topic(log, "t", {"schema": second})
        return commit(units)

    monkeypatch.setattr(log, "commit", overtaken)
    alter_topic(log, "t", {"capacity": 7})
    topic = log.refresh().topic("t")
    assert (topic.settings.schema, topic.settings.capacity) == (second, 7)


@pytest.mark.parametrize("version", [1, 2, VERSIONS_MAX])
@pytest.mark.parametrize("columns", [TYPED, TYPED | KEY | TOMBSTONES])
def test_flags_and_version_share_sixteen_bits(version: int, columns: int):
    both = versioned(columns, version)
    assert both < 2**16
    assert version_of(both) == version
    entry = RecordsEntry(bytes(16), 0, 1, 0, 0, 1, 0, both, 0, 0, 1)
    assert RecordsEntry.parse(entry.payload()).columns == both


def test_own_columns_are_no_columns_of_kmq():
    schema = typed_schema(stored_columns(SCHEMA), TYPED)
    assert schema.names == ["_timestamp", "key", "text"]
    assert schema.field("text").type == pa.string()
    assert schema.field("key").nullable  # a tombstone has no value for it
    assert columns_of(schema) == TYPED
    assert keys_of(_batch(schema)) is None
    keyed = typed_schema(stored_columns(SCHEMA), TYPED | KEY | TOMBSTONES)
    assert keyed.names == ["_timestamp", "_key", "key", "text", "_tombstone"]
    assert columns_of(keyed) == TYPED | KEY | TOMBSTONES
    assert keys_of(_batch(keyed)) is not None


def _batch(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.nulls(1, field.type) for field in schema], schema=schema)


@pytest.mark.parametrize("version", [0, 2])
def test_a_batch_of_an_unknown_version_is_damage(version: int):
    layout = Layout([encode_schema(SCHEMA)])
    with pytest.raises(CorruptionError, match=f"has version {version} .* which has 1: here"):
        layout.stored(versioned(TYPED, version), "here")


def test_a_batch_under_the_newest_schema_is_not_copied():
    layout = Layout([encode_schema(SCHEMA)])
    batch = _batch(layout.stored(versioned(TYPED | KEY, 1), "here"))
    assert layout.current(batch) is batch


def test_only_the_columns_that_are_wanted_are_widened():
    wider = pa.schema([pa.field("key", pa.int16(), nullable=False), SCHEMA.field("text")])
    layout = Layout([encode_schema(SCHEMA), encode_schema(wider)], only={"text", "_key"})
    batch = _batch(layout.stored(versioned(TYPED | KEY, 1), "here"))
    assert layout.current(batch).schema.names == ["_timestamp", "_key", "text"]
