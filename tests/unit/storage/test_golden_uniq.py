"""The golden store of uniq stays readable, and what was stored in it is known."""

from __future__ import annotations

import shutil
from itertools import chain
from pathlib import Path

import pytest

import kmq_spark as kmq
from tests.data.make_golden_uniq import make
from tests.support.golden import DATA, state_of

GOLDEN = DATA / "format-1-uniq"


#: By the texts one, two, three and four in the topic, and one in the queue.
FIRSTS = [("t", 1, 0), ("t", 1, 1), ("t", 1, 2), ("t", 1, 3), (None, 0, 0)]


def _known(folder: Path) -> list[tuple[bytes, int, int]]:
    """The digests with their places; when each was stored hangs on how often the clock was read."""
    uniqs = state_of(folder).uniqs
    found = chain.from_iterable(known.items() for known in uniqs._by_topic.values())
    return [(digest, *place[:2]) for digest, place in found]


@pytest.mark.parametrize("checkpoint", [True, False])
def test_the_golden_records_are_known_by_their_texts(tmp_path: Path, checkpoint: bool):
    shutil.copytree(GOLDEN, tmp_path / "store")
    if not checkpoint:
        shutil.rmtree(tmp_path / "store" / "checkpoints")
    with kmq.open(tmp_path / "store", maintenance=False) as store, store.producer() as producer:
        texts = ("one", "two", "three", "four")
        sent = [producer.send("t", b"again", uniq=text) for text in texts]
        sent.append(producer.send_to_queue("q", b"again", uniq="one"))
        places = [each.result() for each in sent]
        assert [place[:3] for place in places] == FIRSTS
        assert all(place.duplicate for place in places)
        assert not producer.send("t", b"new", uniq="five").result().duplicate
        assert len(store.queue("q").receive(9)) == 1


def test_the_maker_makes_the_same_log(tmp_path: Path):
    make(tmp_path / "store")
    assert _known(tmp_path / "store") == _known(GOLDEN)
