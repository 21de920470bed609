"""Finds offsets whose text changes though the position doesn't: Spark would run empty batches."""

from __future__ import annotations

import json
import random
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kmq_spark.datasource.offsets import StreamOffset, parse_stream_offset
from kmq_spark.datasource.options.bounds import parse_starting
from kmq_storage.errors import FormatVersionError, InvalidRequestError

ORDERS = uuid.UUID("3f0e6d1c-0000-4000-8000-000000000001")

names = st.from_regex(r"[A-Za-z0-9._%-]{1,8}", fullmatch=True)
positions = st.dictionaries(
    names, st.dictionaries(st.integers(0, 50), st.integers(0, 2**62), min_size=1), max_size=5
)


def _offset(places: dict[str, dict[int, int]], *, first: bool) -> StreamOffset:
    ids = {topic: uuid.uuid5(ORDERS, topic) for topic in places}
    return StreamOffset(positions=places, ids=ids, first=places if first else None)


def _shuffled(data: dict[str, dict[int, int]], seed: int) -> dict[str, dict[int, int]]:
    rng = random.Random(seed)
    topics = rng.sample(sorted(data), len(data))
    return {t: {p: data[t][p] for p in rng.sample(sorted(data[t]), len(data[t]))} for t in topics}


@given(positions, st.booleans(), st.integers())
def test_equal_positions_give_equal_text_whatever_their_order(
    places: dict[str, dict[int, int]], first: bool, seed: int
) -> None:
    one = json.dumps(_offset(places, first=first).to_json())
    other = json.dumps(_offset(_shuffled(places, seed), first=first).to_json())
    assert one == other


@given(positions, st.booleans())
def test_an_offset_comes_back_from_a_checkpoint_as_it_was(
    places: dict[str, dict[int, int]], first: bool
) -> None:
    offset = _offset(places, first=first)
    again = parse_stream_offset(json.loads(json.dumps(offset.to_json())))
    assert again == offset
    assert json.dumps(again.to_json()) == json.dumps(offset.to_json())


def test_the_text_is_that_of_version_1_for_ever() -> None:
    offset = StreamOffset(
        positions={"orders": {10: 7, 2: 5}}, ids={"orders": ORDERS}, first={"orders": {10: 6, 2: 0}}
    )
    assert json.dumps(offset.to_json()) == (
        '{"#kmq": {"first": {"orders": {"2": 0, "10": 6}}, '
        '"ids": {"orders": "3f0e6d1c-0000-4000-8000-000000000001"}, "version": 1}, '
        '"orders": {"2": 5, "10": 7}}'
    )
    assert json.dumps(StreamOffset().to_json()) == '{"#kmq": {"version": 1}}'


def test_only_an_offset_without_topics_is_the_open_start() -> None:
    assert parse_stream_offset({"#kmq": {"version": 1}}).is_start
    assert not _offset({"orders": {0: 0}}, first=True).is_start


def test_the_offset_of_a_newer_kmq_is_refused_with_both_versions() -> None:
    with pytest.raises(FormatVersionError, match="version is 99, known up to 1"):
        parse_stream_offset({"#kmq": {"version": 99}, "orders": {"0": 1}})


def test_what_a_query_leaves_out_is_kept_under_the_id_of_its_topic() -> None:
    left = StreamOffset(ids={}, left={uuid.UUID(int=7): {11: 5, 2: 3}})
    text = json.dumps(left.to_json())
    assert '"left": {"00000000-0000-0000-0000-000000000007": {"2": 3, "11": 5}}' in text
    assert parse_stream_offset(json.loads(text)) == left


@pytest.mark.parametrize("data", [{}, {"orders": {"0": 1}}, {"#kmq": 1}, {"#kmq": {}}, 7, "end"])
def test_the_checkpoint_of_another_source_is_refused(data: object) -> None:
    with pytest.raises(InvalidRequestError, match="not written by kmq"):
        parse_stream_offset(data)


def test_an_offset_copied_from_a_querys_progress_is_a_bound() -> None:
    text = json.dumps(_offset({"orders": {0: 5, 1: 7}}, first=True).to_json())
    bound = parse_starting({"startingoffsets": text})
    assert bound is not None
    assert (bound.named, set(bound.ids)) == ({"orders": {0: 5, 1: 7}}, {"orders"})


def test_the_topic_that_was_deleted_last_is_kept() -> None:
    offset = StreamOffset(ids={}, deleted=ORDERS)
    text = json.dumps(offset.to_json())
    assert text == (
        '{"#kmq": {"deleted": "3f0e6d1c-0000-4000-8000-000000000001", "ids": {}, "version": 1}}'
    )
    assert parse_stream_offset(json.loads(text)) == offset


def test_losses_are_kept_by_topic_and_partition_and_the_sum_beside_them() -> None:
    losses = {(ORDERS, 11): ((5, 7),), (ORDERS, 2): ((0, 3), (4, 9))}
    offset = StreamOffset(ids={}, losses=losses, lost=17)
    text = json.dumps(offset.to_json())
    assert text == (
        '{"#kmq": {"ids": {}, "losses": {"3f0e6d1c-0000-4000-8000-000000000001": '
        '{"2": [[0, 3], [4, 9]], "11": [[5, 7]]}}, "lost": 17, "version": 1}}'
    )
    assert parse_stream_offset(json.loads(text)) == offset
