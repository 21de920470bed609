"""`kmq topic`: create, list, describe, alter and delete topics."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from functools import partial
from typing import Any

import kmq_spark as kmq
from kmq_spark.cli.command import (
    Command,
    UsageError,
    argument,
    create_or_keep,
    given,
    new_name,
    positive,
    seconds,
)
from kmq_spark.cli.opening import open_store
from kmq_spark.cli.output import Output, aligned, plain

_NAME = argument("name", metavar="TOPIC", help="the topic")
_NONE = "none"


def _or_none(parse: Callable[[str], float]) -> Callable[[str], float | str]:
    def value(text: str) -> float | str:
        return text if text == _NONE else parse(text)

    return value


_SETTINGS = (
    argument(
        "--retention",
        type=_or_none(seconds),
        metavar="SECONDS",
        help="keep records at least so long; none: for ever",
    ),
    argument(
        "--retention-bytes",
        type=_or_none(positive),
        metavar="BYTES",
        help="keep at least N bytes of each partition; none: all",
    ),
    argument(
        "--cleanup",
        choices=("delete", "compact"),
        help="compact: keep the newest record of each key for ever, whatever the retention",
    ),
    argument(
        "--compression", choices=("lz4", "zstd", _NONE), help="compression of sealed segments"
    ),
    argument(
        "--capacity",
        type=_or_none(positive),
        metavar="ROWS",
        help="refuse more than N records; none: no limit",
    ),
    argument("--max-record-bytes", type=positive, metavar="BYTES", help="refuse larger records"),
    argument(
        "--uniq-window",
        type=seconds,
        metavar="SECONDS",
        help="how long a second record of the same uniq is not stored",
    ),
)


def _settings(arguments: Namespace) -> dict[str, Any]:
    settings = given(arguments, *(each.key for each in _SETTINGS))
    return {name: None if value == _NONE else value for name, value in settings.items()}


def _create(arguments: Namespace, output: Output) -> None:
    with open_store(arguments, create=True) as store:
        create = partial(store.create_topic, arguments.name, partitions=arguments.partitions)
        settings = _settings(arguments)
        info, was_there = create_or_keep(partial(create, **settings), keep=arguments.if_not_exists)
    done = f"topic {info.name} exists" if was_there else f"created topic {info.name}"
    output.fact(_facts(info), f"{done} with {info.partitions} partition(s)")


def _list(arguments: Namespace, output: Output) -> None:
    with open_store(arguments, read_only=True) as store:
        topics = store.topics()
    output.rows(
        [
            {"topic": t.name, "partitions": t.partitions, "rows": t.rows, "bytes": t.bytes}
            for t in topics
        ],
        named="topic",
    )


def _describe(arguments: Namespace, output: Output) -> None:
    with open_store(arguments, read_only=True) as store:
        info = store.describe_topic(arguments.name)
    facts = _facts(info)
    offsets = [
        {"partition": partition, "start": start, "end": end, "rows": end - start}
        for partition, (start, end) in info.offsets.items()
    ]
    head = [f"{key}: {value}" for key, value in plain(facts).items() if key != "offsets"]
    output.fact(facts, "\n".join([*head, *aligned(offsets)]))


def _alter(arguments: Namespace, output: Output) -> None:
    settings = _settings(arguments)
    if not settings and arguments.partitions is None:
        raise UsageError("nothing to change: name a setting or --partitions")
    with open_store(arguments) as store:
        if arguments.partitions is not None:
            store.add_partitions(arguments.name, arguments.partitions)
        if settings:
            store.alter_topic(arguments.name, **settings)
        info = store.describe_topic(arguments.name)
    output.fact(_facts(info), f"altered topic {info.name}")


def _delete(arguments: Namespace, output: Output) -> None:
    with open_store(arguments) as store:
        store.delete_topic(arguments.name)
    output.fact({"deleted": arguments.name}, f"deleted topic {arguments.name}")


def _facts(info: kmq.TopicInfo) -> dict[str, Any]:
    names = ("name", "topic_id", "partitions", "rows", "bytes", "settings", "offsets")
    facts = {name: getattr(info, name) for name in names}
    settings = {name: value for name, value in info.settings.to_json().items() if name != "schemas"}
    if info.schema is not None:
        settings["schema"] = {field.name: _column(field) for field in info.schema}
    return facts | {"settings": settings}


def _column(field: Any) -> str:
    return f"{field.type}{'' if field.nullable else ' not null'}"


COMMANDS = (
    Command(
        "topic create",
        "create a topic",
        _create,
        (
            argument("name", metavar="TOPIC", type=new_name("topic"), help="the topic"),
            argument(
                "--partitions",
                type=positive,
                default=1,
                metavar="N",
                help="number of partitions (1)",
            ),
            argument(
                "--if-not-exists",
                action="store_true",
                help="keep a topic that exists, without an error",
            ),
            *_SETTINGS,
        ),
    ),
    Command("topic list", "list the topics", _list),
    Command("topic describe", "show a topic's settings and offsets", _describe, (_NAME,)),
    Command(
        "topic alter",
        "change a topic's settings, or add partitions",
        _alter,
        (
            _NAME,
            argument(
                "--partitions", type=positive, metavar="N", help="the new number of partitions"
            ),
            *_SETTINGS,
        ),
    ),
    Command("topic delete", "delete a topic and its records", _delete, (_NAME,)),
)
