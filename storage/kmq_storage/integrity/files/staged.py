"""Checks of staged files: batches by checksums, and the bytes around them by rewriting them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from kmq_storage.format.checksum import Bytes
from kmq_storage.format.frame import part_of
from kmq_storage.format.message import FILE_MAGIC_BYTES
from kmq_storage.format.packing import parts_behind
from kmq_storage.format.staged_file import StagedEncoder, staged_schema
from kmq_storage.integrity.files.batches import check_chunk, schema_of, stored_batch
from kmq_storage.integrity.report import Damage
from kmq_storage.log.state.topic_state import Topic
from kmq_storage.model import Chunk
from kmq_storage.objects.mapping import brought_in

_MAGIC = pa.py_buffer(b"ARROW1")


def check_staged(
    contents: pa.Buffer, chunks: Sequence[Chunk], topic: Topic, partition: int, *, deep: bool
) -> Iterator[Damage]:
    """Damage in the staged file of neighbouring chunks; the file is read whole only with `deep`."""
    file = chunks[0].location.file
    if not deep:
        end = max(chunk.location.position + chunk.location.length for chunk in chunks)
        if end > contents.size:
            reason = f"the file has {contents.size} bytes, commits name the first {end}"
            yield Damage(
                file, topic.name, partition, chunks[0].base_offset, chunks[-1].end_offset, reason
            )
        return
    wrong = [
        damage for chunk in chunks for damage in check_chunk(contents, chunk, topic, partition)
    ]
    yield from wrong
    if not wrong:
        yield from _check_around(contents, chunks, topic, partition)


def _check_around(
    contents: pa.Buffer, chunks: Sequence[Chunk], topic: Topic, partition: int
) -> Iterator[Damage]:
    """Check that the bytes before, between and behind the batches are those that Arrow writes."""
    file = chunks[0].location.file
    brought_in(contents)
    schema = staged_schema(schema_of(chunks[0], topic), topic.name, partition)
    if not part_of(contents, contents.size - len(_MAGIC), len(_MAGIC)).equals(_MAGIC):
        yield Damage(file, reason="it doesn't end as an Arrow file: it was cut, or added to")
        return
    if not _begin_the_file(chunks, schema):
        return  # other batches are sealed already, so the bytes around are not read
    written = _Comparison(contents)
    batches = ((stored_batch(contents, c, topic), _has_parts(contents, c)) for c in chunks)
    for piece in StagedEncoder(schema).buffers(batches):
        written.write(piece)
    at = written.at if written.difference is None else written.difference
    behind = chunks[-1].location.position + chunks[-1].location.length
    if at == contents.size or (written.at < contents.size and behind <= at < written.at):
        return  # nothing else is there, or other batches are
    yield Damage(
        file,
        reason=f"from byte {at} on it is not what this version of Arrow writes around the batches, "
        "which are whole",
    )


def _begin_the_file(chunks: Sequence[Chunk], schema: pa.Schema) -> bool:
    """Whether the first batches of the file are among these, without a gap."""
    position = FILE_MAGIC_BYTES + schema.serialize().size
    for chunk in chunks:
        if chunk.location.position != position:
            return False
        position += chunk.location.length
    return True


def _has_parts(contents: pa.Buffer, chunk: Chunk) -> bool:
    at = chunk.location
    return bool(parts_behind(contents.slice(at.position, at.length), chunk.checksum))


class _Comparison:
    """Compares written bytes with existing ones, without keeping them."""

    def __init__(self, contents: pa.Buffer) -> None:
        self._contents = contents
        self.at = 0
        #: Where the first piece that differs begins.
        self.difference: int | None = None

    def write(self, data: Bytes) -> None:
        """Compare these bytes with the next ones of the file, and note where they first differ."""
        written = data if isinstance(data, pa.Buffer) else pa.py_buffer(data)
        there = part_of(self._contents, self.at, written.size)
        if self.difference is None and not there.equals(written):
            self.difference = self.at
        self.at += written.size
