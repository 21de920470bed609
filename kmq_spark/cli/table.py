"""The command table: every command of `kmq`, in the order of its help."""

from __future__ import annotations

from kmq_spark.cli import (
    archive,
    bench,
    consume,
    copying,
    demo,
    doctor,
    finding,
    group,
    integrity,
    log,
    maintenance,
    produce,
    queue,
    serve,
    topic,
)
from kmq_spark.cli.command import Command

COMMANDS: tuple[Command, ...] = (
    *demo.COMMANDS,
    *doctor.COMMANDS,
    *bench.COMMANDS,
    *topic.COMMANDS,
    *produce.COMMANDS,
    *consume.COMMANDS,
    *group.COMMANDS,
    *queue.COMMANDS,
    *log.COMMANDS,
    *finding.COMMANDS,
    *copying.COMMANDS,
    *archive.COMMANDS,
    *maintenance.COMMANDS,
    *integrity.COMMANDS,
    *serve.COMMANDS,
)

#: The help for the first word of commands of two words.
FAMILIES = {
    "topic": "create, list, describe, alter and delete topics",
    "group": "list and describe consumer groups; set, copy and delete their offsets",
    "queue": "create, bind, list, describe and delete queues; move dead letters back",
}
