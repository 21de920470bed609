"""storage/FORMAT.md is complete: a reader that was written from it alone reads what kmq reads."""

from __future__ import annotations

import re
import shutil
import struct
from pathlib import Path
from typing import Any

import pytest

import kmq_spark as kmq
from kmq_spark.errors import DataLossError
from tests.support.format_batches import RefusedError, schemas_of
from tests.support.format_reader import KINDS, FormatReader, Topic, entries

ROOT = Path(__file__).parents[3]
GOLDEN = sorted(log.parent for log in (ROOT / "tests" / "data").glob("format-*/log"))
#: Their logs begin with their first commit, so that no checkpoint is needed.
WHOLE_LOGS = [golden for golden in GOLDEN if (golden / "log" / f"{1:020d}.log").exists()]
#: They have topics without records, or none.
WITHOUT_RECORDS = {"format-1-generations", "format-1-gone", "format-1-groups"}

Records = dict[int, dict[str, Any]]


def _name(golden: Path) -> str:
    return golden.name


@pytest.mark.parametrize("golden", GOLDEN, ids=_name)
def test_a_reader_written_from_the_description_of_the_format_alone_reads_what_kmq_reads(
    golden: Path, tmp_path: Path
):
    _compare(FormatReader(golden), golden, tmp_path / "store")


@pytest.mark.parametrize("golden", WHOLE_LOGS, ids=_name)
def test_that_reader_finds_the_same_in_the_log_alone(golden: Path, tmp_path: Path):
    _compare(FormatReader(golden, log_alone=True), golden, tmp_path / "store")


def test_that_reader_knows_the_kinds_of_entries_that_the_description_lists():
    assert _listed_kinds() == KINDS


def test_that_reader_met_each_kind_of_entry_in_a_golden_store():
    readers = [FormatReader(golden, log_alone=golden in WHOLE_LOGS) for golden in GOLDEN]
    assert set().union(*(reader.kinds for reader in readers)) == KINDS


@pytest.mark.parametrize(("kind", "flags"), [(max(KINDS) + 1, 0), (0, 0), (1, 1)])
def test_that_reader_refuses_entries_that_the_description_does_not_list(kind: int, flags: int):
    with pytest.raises(RefusedError, match=f"an entry of kind {kind} with flags {flags}"):
        list(entries(struct.pack("<HHI", kind, flags, 0)))


def _compare(reader: FormatReader, golden: Path, copy: Path) -> None:
    """Both read the same of each partition, and not nothing."""
    shutil.copytree(golden, copy)
    compared = 0
    with kmq.open(copy, create=False, read_only=True) as store:
        for topic in reader.topics.values():
            for partition in range(len(topic.partitions)):
                expected = _read_by_kmq(store, topic, partition)
                found = reader.records(topic, partition)
                assert _as_kmq_shows(found, topic, partition) == expected, topic.name
                compared += len(expected)
    assert (compared == 0) == (golden.name in WITHOUT_RECORDS)


def _read_by_kmq(store: kmq.Store, topic: Topic, partition: int) -> Records:
    """What kmq reads of a partition, on both sides of each gap."""
    found: Records = {}
    read: dict[str, Any] = {"topic": topic.name, "partitions": [partition]}
    while True:
        try:
            return found | _by_offset(store.read(**read).read_all().to_pylist())
        except DataLossError as error:
            end, behind = error.context["start"], error.context["end"]
            before = store.read(**read, end={partition: end}).read_all()
            found |= _by_offset(before.to_pylist())
            read["start"] = {partition: behind}


def _by_offset(rows: list[dict[str, Any]]) -> Records:
    return {row["_offset" if "_offset" in row else "offset"]: row for row in rows}


def _as_kmq_shows(records: Records, topic: Topic, partition: int) -> Records:
    """A reader's records with the columns that kmq has for a topic."""
    versions = schemas_of(topic.settings)
    prefix = "_" if versions else ""
    own = versions[-1].names if versions else ["value"]
    names = [*own, *(prefix + name for name in ("key", "timestamp", "headers", "properties"))]
    place = {prefix + "topic": topic.name, prefix + "partition": partition}
    return {
        offset: {name: row.get(name) for name in names} | place | {prefix + "offset": offset}
        for offset, row in records.items()
    }


def _listed_kinds() -> set[int]:
    """The kinds in the index of section 4, such as `| 7, 8, 9 |` and `| 14 to 19, 21 |`."""
    text = (ROOT / "storage" / "FORMAT.md").read_text()
    _, _, index = text.partition("| kinds | about | section |\n|---|---|---|\n")
    listed: set[int] = set()
    for line in index.partition("\n\n")[0].splitlines():
        for first, last in re.findall(r"(\d+)(?: to (\d+))?", line.split("|")[1]):
            listed |= set(range(int(first), int(last or first) + 1))
    return listed
