"""What damaged batches of a run have, in words; only imported when there are some."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

import pyarrow as pa

from kmq_storage.errors import CorruptionError, KmqError
from kmq_storage.format.binary_columns import binary_column
from kmq_storage.format.message_place import MessagePlace
from kmq_storage.format.queue_directory import Directory
from kmq_storage.format.queue_table import QueueTable
from kmq_storage.format.segment import SegmentFooter
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.reading.reader import ChunkReader
from kmq_storage.log.reading.run_index import RunIndex, counts_in, named_queue
from kmq_storage.log.state.topic_state import Topic
from kmq_storage.model import Chunk, Location

_PARTITION = 0


def with_queues(
    lost: KmqError,
    footer: SegmentFooter | None,
    damaged: Sequence[Chunk],
    read: Callable[[Location], pa.Buffer],
) -> CorruptionError:
    """An error about the first of some damaged batches of a run, with its queues and rows."""
    named, facts = "", dict[str, object]()
    with suppress(CorruptionError, OSError):
        if footer is not None and footer.directory is not None:
            facts = _facts(footer, footer.directory, damaged[0], read)
            named = f" (messages of the queues {facts['queues']})"
    others = f", and {len(damaged) - 1} more of its batches" if len(damaged) > 1 else ""
    return CorruptionError(f"{lost.message}{named}{others}", **lost.context, **facts)


def _facts(
    footer: SegmentFooter,
    place: MessagePlace,
    chunk: Chunk,
    read: Callable[[Location], pa.Buffer],
) -> dict[str, object]:
    file, base, last = chunk.location.file, footer.chunks[0].base_offset, footer.chunks[-1]

    def message(at: MessagePlace) -> pa.Buffer:
        return read(Location(file, at.position, at.length))

    directory = Directory(message(place), place, file, last.end_offset - base)

    def table(block: int) -> QueueTable:
        return directory.decoded(block, message(directory.place(block)))

    first, behind = chunk.base_offset - base, chunk.end_offset - base
    queues = [named_queue(directory.queue_of(row, table)) for row in (first, behind - 1)]
    return {"queues": f"{queues[0]} to {queues[1]}", "rows": (first, behind)}


def messages_in_words(runs: Sequence[RunIndex], first: int, behind: int) -> str:
    """The first and last message in rows of the last of these runs, which are all up to it."""
    return f"{_message_at(runs, first)} to {_message_at(runs, behind - 1)}"


def _message_at(runs: Sequence[RunIndex], row: int) -> str:
    run = runs[-1]
    queue = run.queue_of(row)
    if queue is None:
        return "a record of no queue"
    _, behind = run.rows_of(queue)
    index = int(counts_in(runs, binary_column([queue]), run.place.end_offset)[0]) - (behind - row)
    return f"{named_queue(queue)}, index {index}"


def with_indexes(
    log: CommitLog, told: dict[str, str], topic: Topic, error: CorruptionError
) -> CorruptionError:
    """An error about a damaged batch of a run, with the indexes of its first and last message.

    The error stays as it is where earlier runs can't be read. `told` keeps what was found.
    """
    queues, file = str(error.context["queues"]), str(error.context["file"])
    if file not in told:
        told[file] = queues
        with suppress(CorruptionError):
            told[file] = _messages_of(log, topic, error)
    facts = {name: fact for name, fact in error.context.items() if name != "rows"}
    text = error.message.replace(queues, told[file], 1)
    return CorruptionError(text, **facts | {"queues": told[file]})


def _messages_of(log: CommitLog, topic: Topic, error: CorruptionError) -> str:
    """The first and last message of a damaged batch."""
    reader, part = ChunkReader(log.files), topic.partition(_PARTITION)
    at, rows = int(str(error.context["start"])), error.context["rows"]
    places = topic.index(_PARTITION).rows(part.start, at + 1)
    runs = [RunIndex(reader, row.place((topic.id, _PARTITION)), topic.name) for row in places]
    return messages_in_words(runs, *rows)
