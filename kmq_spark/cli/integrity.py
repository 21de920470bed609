"""`kmq verify` and `kmq repair`: find damage to a store, and repair it."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import replace

import kmq_spark as kmq
from kmq_spark.cli.command import Command, argument
from kmq_spark.cli.opening import open_store, store_url
from kmq_spark.cli.output import Output, plain
from kmq_storage.environment import SYSTEM
from kmq_storage.integrity.repairs.rebuild import rebuild
from kmq_storage.integrity.verify import why_closed
from kmq_storage.log.open import open_place
from kmq_storage.objects.open import open_files

_WHOLE = "The store is whole."
_NOT_DEEP = "No damage was found; --deep looks at every record, too."
_WAYS_OUT = (
    "{} place(s) are damaged: put the files back from a copy; `kmq repair` mends what it can "
    "without loss, and with --drop-damaged gives up what can't be read."
)


def _verify(arguments: Namespace, output: Output) -> int:
    looked = _WHOLE if arguments.deep else _NOT_DEEP
    return _print(verified(arguments), output, whole=looked)


def verified(arguments: Namespace) -> kmq.Report:
    """Return the report on a store, also when damage keeps it from being opened."""
    try:
        with open_store(arguments, read_only=True) as store:
            return store.verify(arguments.deep)
    except kmq.FormatVersionError:
        raise
    except kmq.CorruptionError as error:
        return why_closed(open_files(store_url(arguments) or "", read_only=True), error)


def _repair(arguments: Namespace, output: Output) -> int:
    done = rebuilt(arguments) if arguments.drop_damaged else []
    with open_store(arguments) as store:
        report = store.repair(drop_damaged=arguments.drop_damaged)
    return _print(replace(report, notes=done + report.notes), output, whole=_WHOLE)


def rebuilt(arguments: Namespace) -> list[str]:
    """Rebuild a store of which no checkpoint can be read; return notes of what was done."""
    try:
        with open_store(arguments, read_only=True) as store:
            store.log.refresh()  # only this looks into a bucket
    except kmq.FormatVersionError:
        raise
    except kmq.UnavailableError:
        return []  # opening it for writing may mend that, or raises why not
    except kmq.CorruptionError:
        return rebuild(*open_place(store_url(arguments) or ""), SYSTEM)
    return []


def _print(report: kmq.Report, output: Output, *, whole: str) -> int:
    lines = [f"damaged  {damage}" for damage in report.damage]
    lines += [f"unused   {file}" for file in report.unreferenced]
    lines += [f"note     {note}" for note in report.notes]
    lines.append(whole if report.ok else _WAYS_OUT.format(len(report.damage)))
    output.fact(plain(report), "\n".join(lines))
    return 0 if report.ok else 1


COMMANDS = (
    Command(
        "verify",
        "look for damage; with --deep in every byte",
        _verify,
        (argument("--deep", action="store_true", help="read every record, and check every byte"),),
    ),
    Command(
        "repair",
        "repair the store; without options no record is lost",
        _repair,
        (
            argument(
                "--drop-damaged",
                action="store_true",
                help="also cut out, for good, what can't be read",
            ),
        ),
    ),
)
