"""The golden store of segments with proven columns stays readable, and older ones by column."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import kmq_spark as kmq
from kmq_storage import paths
from kmq_storage.log.reading.reader import ChunkReader
from kmq_storage.model import Chunk
from tests.data.make_golden_columns import PLAIN, ROWS, SCHEMA, make
from tests.data.make_golden_typed import value
from tests.data.making import rows
from tests.support.golden import DATA


def _opened(name: str, folder: Path) -> kmq.Store:
    shutil.copytree(DATA / name, folder)
    return kmq.open(folder, create=False, read_only=True)


@pytest.mark.parametrize("name", PLAIN)
def test_the_golden_columns_come_back_alone_and_together(name: str, tmp_path: Path):
    expected = rows(0, ROWS, PLAIN[name][0]).batch
    with _opened("format-1-columns", tmp_path / "store") as store:
        whole = store.read(name).read_all()
        for column in ("timestamp", "key", "value", "headers", "properties"):
            alone = store.read(name, columns=[column]).read_all()[column]
            assert alone.equals(whole[column])
            if column in expected.schema.names:
                assert alone.to_pylist() == expected[column].to_pylist()
            else:
                assert alone.null_count == ROWS
        assert whole["offset"].to_pylist() == list(range(ROWS))
        assert all(chunk.parts for chunk in _chunks(store, name))


def test_golden_columns_of_typed_topics_come_back_alone(tmp_path: Path):
    with _opened("format-1-columns", tmp_path / "store") as store:
        for column in ("id", "price", "kind", "tags", "counts"):
            found = store.read("typed", columns=[column]).read_all()[column]
            assert found.to_pylist() == [value(n)[column] for n in range(ROWS)]
        assert store.describe_topic("typed").schema == SCHEMA


def test_every_byte_of_the_golden_store_is_right(tmp_path: Path):
    with _opened("format-1-columns", tmp_path / "store") as store:
        assert store.verify(deep=True).ok


def test_segments_from_before_are_read_by_column_too(tmp_path: Path):
    with _opened("format-1-engine", tmp_path / "store") as store:
        assert not any(chunk.parts for chunk in _chunks(store, "stream"))
        whole = store.read("stream").read_all()
        for column in ("key", "headers", "offset"):
            assert store.read("stream", columns=[column]).read_all()[column].equals(whole[column])


def _chunks(store: kmq.Store, name: str) -> list[Chunk]:
    topic = store.log.refresh().topic(name)
    part, reader = topic.partition(0), ChunkReader(store.log.files)
    places = topic.places(0, part.start, part.end)
    sealed = (place for place in places if not isinstance(place, Chunk))
    return [chunk for place in sealed for chunk in reader.chunks(place, name, 0)]


def test_the_maker_makes_such_a_store(tmp_path: Path):
    make(tmp_path / "store")
    assert _places(tmp_path / "store") == _places(DATA / "format-1-columns")


def _places(folder: Path) -> set[str]:
    """Topic, partition and base offset of each segment; the ids of files are made otherwise now."""
    return {str(file.relative_to(folder)).rpartition("-")[0] for file in _files(folder)}


def _files(folder: Path) -> list[Path]:
    return [file for file in (folder / paths.SEGMENT_FOLDER).rglob("*.arrow") if file.is_file()]
