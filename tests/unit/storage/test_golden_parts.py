"""The golden store of batches that are not sealed and can be read by column stays readable."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import kmq_spark as kmq
from kmq_storage import paths
from kmq_storage.format.packing import parts_behind
from kmq_storage.log.reading.reader import ChunkReader
from kmq_storage.log.state.topic_state import Topic
from kmq_storage.model import Chunk
from tests.data.make_golden_parts import PLACES, ROWS
from tests.data.make_golden_typed import value
from tests.support.golden import DATA

GOLDEN = DATA / "format-1-parts"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[kmq.Store]:
    """A copy of the golden store."""
    shutil.copytree(GOLDEN, tmp_path / "store")
    with kmq.open(tmp_path / "store", create=False, read_only=True) as opened:
        yield opened


@pytest.mark.parametrize("name", PLACES)
def test_the_golden_columns_come_back_alone_and_together(store: kmq.Store, name: str):
    whole = store.read(name).read_all()
    for column in ("id", "price", "kind", "tags", "counts"):
        alone = store.read(name, columns=[column]).read_all()[column]
        assert alone.to_pylist() == whole[column].to_pylist()
        assert alone.to_pylist() == [value(n)[column] for n in range(whole.num_rows)]


def test_the_golden_batches_have_behind_them_what_proves_their_columns(store: kmq.Store):
    state = store.log.refresh()
    found = {name: _batches(state.topic(name)) for name in PLACES}
    reader = ChunkReader(store.log.files)
    assert {name: len(chunks) for name, chunks in found.items()} == {"inside": 1, "staged": 2}
    for chunk in (chunk for chunks in found.values() for chunk in chunks):
        assert parts_behind(reader.message(chunk.location), chunk.checksum)


def test_every_byte_of_the_golden_store_is_right(store: kmq.Store):
    assert store.verify(deep=True).ok


def test_any_arrow_tool_opens_the_staged_file():
    (file,) = (GOLDEN / paths.STAGED_FOLDER).iterdir()
    table = pa.ipc.open_file(file).read_all()
    table.validate(full=True)
    assert table["id"].to_pylist() == list(range(2 * ROWS))


def _batches(topic: Topic) -> list[Chunk]:
    end = topic.partition(0).end
    return [place for place in topic.places(0, 0, end) if isinstance(place, Chunk)]
