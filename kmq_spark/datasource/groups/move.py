"""A group's move inside the commit of a sink: records and offsets together, or neither.

It travels as option `groupOffsets` of a batch write, which `kmq.incremental` sets.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from kmq_spark.datasource.refusal import refuse
from kmq_storage.format.entries import GroupOffsetsEntry
from kmq_storage.log.state.store_state import StoreState

if TYPE_CHECKING:
    from kmq_spark.datasource.groups.committed import Place

OPTION = "groupOffsets"


def has_moved(state: StoreState, group: str, move: Iterable[GroupOffsetsEntry]) -> bool:
    """Whether a member's move was committed; it is there as a whole, or not at all."""
    committed = state.group_offsets(group)
    return any(
        committed.get(entry.topic_id, {}).get(partition, -1) >= offset
        for entry in move
        for partition, offset in entry.offsets
    )


def move_option(place: Place, move: Iterable[GroupOffsetsEntry]) -> str:
    """Return the option's text: what a member commits when all before a position is finished."""
    moves = {entry.topic_id.hex(): [list(pair) for pair in entry.offsets] for entry in move}
    facts = {"generation": place.generation, "group": place.group, "offsets": moves}
    return json.dumps(facts, sort_keys=True)


def parse_move(given: Mapping[str, str]) -> tuple[GroupOffsetsEntry, ...]:
    """Return the entries that move a group; none without the option."""
    text = given.get(OPTION.lower())
    if text is None:
        return ()
    try:
        facts = json.loads(text)
        return tuple(
            GroupOffsetsEntry(
                facts["group"],
                facts["generation"],
                bytes.fromhex(topic),
                tuple((partition, offset) for partition, offset in offsets),
            )
            for topic, offsets in facts["offsets"].items()
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        refuse(OPTION, text[:99], "what kmq.incremental sets: use its write()")
