"""`kmq group`: list, describe, set, copy and delete the offsets of consumer groups."""

from __future__ import annotations

import json
from argparse import Namespace
from datetime import datetime
from typing import Any

import kmq_spark as kmq
from kmq_spark.cli.command import Command, UsageError, argument
from kmq_spark.cli.opening import open_store
from kmq_spark.cli.output import Output, aligned, plain
from kmq_spark.client.handles.arguments import checked_offsets

_NAME = argument("name", metavar="GROUP", help="the group")


def _list(arguments: Namespace, output: Output) -> None:
    with open_store(arguments, read_only=True) as store:
        groups = store.groups()
    rows = [{"group": g.name, "members": len(g.members), "lag": _total(g.lag)} for g in groups]
    output.rows(rows, named="group")


def _describe(arguments: Namespace, output: Output) -> None:
    with open_store(arguments, read_only=True) as store:
        info = store.describe_group(arguments.name)
    heading = f"group {info.name}, generation {info.generation}, {len(info.members)} member(s)"
    tables = [rows for rows in (_members(info), _partitions(info)) if rows]
    text = "\n".join([heading, *(line for rows in tables for line in aligned(rows))])
    output.fact(plain(info), text)


def _set(arguments: Namespace, output: Output) -> None:
    target = _parse_target(arguments.to)
    with open_store(arguments) as store:
        store.set_group_offsets(arguments.name, target, topics=arguments.topic)
        info = store.describe_group(arguments.name)
    output.fact(
        {"name": info.name, "committed": info.committed}, "\n".join(aligned(_partitions(info)))
    )


def _copy(arguments: Namespace, output: Output) -> None:
    with open_store(arguments) as store:
        store.copy_group(arguments.name, arguments.target)
    output.fact(
        {"source": arguments.name, "target": arguments.target},
        f"copied group {arguments.name} to {arguments.target}",
    )


def _delete(arguments: Namespace, output: Output) -> None:
    with open_store(arguments) as store:
        store.delete_group(arguments.name)
    output.fact({"deleted": arguments.name}, f"deleted group {arguments.name}")


def _parse_target(text: str) -> str | datetime | dict[str, dict[int, int]]:
    """Return the value of --to: earliest, latest, an instant with a zone, or offsets."""
    if text in ("earliest", "latest"):
        return text
    try:
        if text.startswith("{"):
            return checked_offsets(
                {
                    topic: {int(partition): offset for partition, offset in offsets.items()}
                    for topic, offsets in json.loads(text).items()
                }
            )
        return datetime.fromisoformat(text)
    except (ValueError, AttributeError, TypeError):
        raise UsageError(
            f"--to takes earliest, latest, an instant as 2026-01-31T12:00:00+00:00 or offsets "
            f'as {{"topic": {{"0": 42}}}}, not {text!r}'
        ) from None


def _members(info: kmq.GroupInfo) -> list[dict[str, Any]]:
    return [
        {
            "member": member.name,
            "epoch": member.epoch,
            "client": member.client,
            "joined": f"{member.joined:%Y-%m-%d %H:%M:%S}",
            "assignment": " ".join(
                f"{topic}:{','.join(map(str, numbers))}"
                for topic, numbers in member.assignment.items()
            )
            or "-",
        }
        for member in info.members
    ]


def _partitions(info: kmq.GroupInfo) -> list[dict[str, Any]]:
    return [
        {
            "topic": topic,
            "partition": partition,
            "committed": info.committed.get(topic, {}).get(partition),
            "end": end,
            "lag": info.lag[topic][partition],
        }
        for topic, ends in info.end.items()
        for partition, end in ends.items()
    ]


def _total(lag: Any) -> int:
    return sum(rows for partitions in lag.values() for rows in partitions.values())


COMMANDS = (
    Command("group list", "list the groups and their lag", _list),
    Command("group describe", "show a group's members, offsets and lag", _describe, (_NAME,)),
    Command(
        "group set",
        "set a group's offsets",
        _set,
        (
            _NAME,
            argument(
                "--to", required=True, help="earliest, latest, an instant, or offsets as JSON"
            ),
            argument(
                "--topic",
                action="append",
                help="only this topic; default: those that the group has (may be repeated)",
            ),
        ),
    ),
    Command(
        "group copy",
        "copy a group's offsets to another group",
        _copy,
        (_NAME, argument("target", metavar="TARGET", help="the group that gets the offsets")),
    ),
    Command("group delete", "delete a group and its offsets", _delete, (_NAME,)),
)
