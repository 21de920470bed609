"""Finds offsets of a released version that this one reads, or would write, differently."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

import pytest

from kmq_spark.datasource.offsets import parse_stream_offset

CHECKPOINT = Path(__file__).resolve().parents[2] / "data" / "checkpoint-1"


def _text(batch: int, checkpoint: Path = CHECKPOINT) -> str:
    return (checkpoint / "offsets" / str(batch)).read_text().splitlines()[-1]


@pytest.mark.parametrize(("batch", "end"), [(0, 15), (1, 30), (2, 40)])
def test_offsets_of_the_golden_checkpoint_are_read_as_they_were_written(
    batch: int, end: int
) -> None:
    offset = parse_stream_offset(json.loads(_text(batch)))
    assert offset.positions == {"totals": {0: end}}
    assert offset.first == ({"totals": {0: 0}} if batch == 0 else None)
    assert offset.ids is not None
    assert offset.ids["totals"].bytes == bytes([31]) * 16
    assert str(offset.query) == "342d6bd6-ec55-4b9f-a07c-54d2bddd3437"


@pytest.mark.parametrize("batch", range(3))
def test_the_same_offsets_have_the_same_text_today(batch: int) -> None:
    offset = parse_stream_offset(json.loads(_text(batch)))
    assert json.dumps(offset.to_json()) == _text(batch)


def test_losses_of_the_golden_checkpoint_are_read_and_written_as_they_were() -> None:
    text = _text(0, CHECKPOINT.with_name("checkpoint-1-losses"))
    offset = parse_stream_offset(json.loads(text))
    assert (offset.positions, offset.first) == ({"totals": {0: 40}}, {"totals": {0: 22}})
    assert offset.lost == 12
    assert offset.losses == {(uuid.UUID(bytes=bytes([31]) * 16), 0): ((10, 22),)}
    assert json.dumps(offset.to_json()) == text
