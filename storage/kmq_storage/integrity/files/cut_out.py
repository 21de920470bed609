"""Offsets that a repair cut out, in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kmq_storage.log.state.topic_state import Topic

#: So many ranges of a keyed topic are listed; a batch of a run may be in thousands.
_LISTED = 16


def cut_out(topic: Topic, number: int, spans: Sequence[tuple[int, int]]) -> Iterator[str]:
    """What was cut out of a partition: each range, or in one line the many ones of a batch."""
    if topic.settings.keyed and len(spans) > _LISTED:
        count, last = sum(end - start for start, end in spans), max(end for _, end in spans) - 1
        yield (
            f"{count} of the offsets {spans[0][0]} to {last} were cut out, in {len(spans)} ranges"
        )
        return
    yield from (f"offsets {start} to {end - 1} were cut out" for start, end in spans)
