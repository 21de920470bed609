"""`kmq queue`: create, bind, list, describe and delete queues, and move dead letters back."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import asdict
from datetime import datetime
from functools import partial

from kmq_spark.cli.command import (
    Command,
    argument,
    create_or_keep,
    given,
    instant,
    new_name,
    positive,
    seconds,
)
from kmq_spark.cli.opening import open_store
from kmq_spark.cli.output import Output
from kmq_storage.log.state.doubtful_ends import warn_of_doubtful_ends
from kmq_storage.queues.administration import info_of

_NAME = argument("name", metavar="QUEUE", help="the queue")
_TOPICS = argument("topic", metavar="TOPIC", nargs="+", help="the topics")


def _delays(text: str) -> tuple[float, ...]:
    return tuple(seconds(each) for each in text.split(","))


def _start(text: str) -> str | datetime:
    return text if text in ("earliest", "latest") else instant(text)


_SETTINGS = (
    argument(
        "--lock-timeout",
        type=seconds,
        metavar="SECONDS",
        help="how long a receiver holds a record (30)",
    ),
    argument(
        "--max-deliveries",
        type=positive,
        metavar="N",
        help="after N deliveries without success: dead letter (16)",
    ),
    argument(
        "--backoff",
        type=_delays,
        metavar="SECONDS,...",
        help="until a record comes again after nack (1,5,30,120)",
    ),
    argument(
        "--order",
        choices=("none", "key", "strict"),
        help="hand out one after another: per key, or all (none)",
    ),
    argument("--dead-letter", metavar="QUEUE", help="the queue for dead letters (QUEUE.dlq)"),
    argument(
        "--capacity",
        type=positive,
        metavar="ROWS",
        help="refuse more while it has N unfinished records",
    ),
    argument(
        "--uniq-window",
        type=seconds,
        metavar="SECONDS",
        help="how long a second record of the same uniq is not stored (120)",
    ),
)


def _create(arguments: Namespace, output: Output) -> None:
    with open_store(arguments, create=True) as store:
        create = partial(store.create_queue, arguments.name, topics=arguments.topic)
        settings = given(arguments, *(each.key for each in _SETTINGS))
        info, was_there = create_or_keep(partial(create, **settings), keep=arguments.if_not_exists)
    done = f"queue {info.name} exists" if was_there else f"created queue {info.name}"
    output.fact(asdict(info), done)


def _bind(arguments: Namespace, output: Output) -> None:
    with open_store(arguments) as store:
        how = given(arguments, "start", "filter", "tags")
        store.bind_queue(arguments.name, arguments.topic, **how)
    _tell(arguments, output, f"bound queue {arguments.name} to {', '.join(arguments.topic)}")


def _unbind(arguments: Namespace, output: Output) -> None:
    with open_store(arguments) as store:
        store.unbind_queue(arguments.name, arguments.topic)
    _tell(arguments, output, f"queue {arguments.name} reads {', '.join(arguments.topic)} no more")


def _tell(arguments: Namespace, output: Output, text: str) -> None:
    output.fact({"name": arguments.name, "topics": arguments.topic}, text)


def _list(arguments: Namespace, output: Output) -> None:
    with open_store(arguments, read_only=True) as store:
        queues = store.queues()
    rows = [{"queue": q.name, "topics": q.topics, **asdict(q.stats)} for q in queues]
    output.rows(rows, named="queue")


def _describe(arguments: Namespace, output: Output) -> None:
    with open_store(arguments, read_only=True) as store:
        state = store.log.refresh()
        info = info_of(store.log, state.queue(arguments.name))
        warn_of_doubtful_ends(state, state.topics.values())
    head = [f"queue: {info.name}", f"topics: {', '.join(info.topics) or '-'}"]
    facts = asdict(info.settings) | asdict(info.stats)
    output.fact(asdict(info), "\n".join([*head, *(f"{n}: {v}" for n, v in facts.items())]))


def _redrive(arguments: Namespace, output: Output) -> None:
    with open_store(arguments) as store, store.queue(arguments.name) as queue:
        moved = queue.redrive(arguments.max)
    text = f"moved {moved} dead letter(s) back to queue {arguments.name}"
    output.fact({"name": arguments.name, "records": moved}, text)


def _delete(arguments: Namespace, output: Output) -> None:
    with open_store(arguments) as store:
        store.delete_queue(arguments.name)
    output.fact({"deleted": arguments.name}, f"deleted queue {arguments.name}")


COMMANDS = (
    Command(
        "queue create",
        "create a queue",
        _create,
        (
            argument("name", metavar="QUEUE", type=new_name("queue"), help="the queue"),
            argument("topic", metavar="TOPIC", nargs="*", help="the topics that it reads"),
            argument(
                "--if-not-exists",
                action="store_true",
                help="keep a queue that exists, without an error",
            ),
            *_SETTINGS,
        ),
    ),
    Command("queue list", "list the queues with their topics and counts of records", _list),
    Command("queue describe", "show a queue's topics, settings and counts", _describe, (_NAME,)),
    Command(
        "queue bind",
        "have a queue read topics, or change their filter",
        _bind,
        (
            _NAME,
            _TOPICS,
            argument(
                "--start",
                type=_start,
                default="earliest",
                metavar="WHERE",
                help="earliest (the default), latest, or an instant",
            ),
            argument("--filter", help="only records for which this is true, as 'amount >= 100'"),
            argument(
                "--tags",
                help="only records with one of these in property tag, as 'paid || refunded'",
            ),
        ),
    ),
    Command("queue unbind", "have a queue stop reading topics", _unbind, (_NAME, _TOPICS)),
    Command(
        "queue redrive",
        "move a queue's dead letters back to it",
        _redrive,
        (_NAME, argument("--max", type=positive, metavar="N", help="move at most N")),
    ),
    Command("queue delete", "delete a queue and what was sent to it", _delete, (_NAME,)),
)
