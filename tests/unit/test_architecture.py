"""The layers: who may import whom, and what an import may start."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.sources import Source, package_sources

SOURCES = package_sources()

#: The layers from the bottom up, by the longest prefix of a module's name: who stands in one may
#: import it and what is below it.
LAYERS = (
    tuple(
        f"kmq_storage.{name}"
        for name in (
            "arrays",
            "cached",
            "cutting",
            "errors",
            "limits",
            "names",
            "numeric",
            "settings",
            "paths",
            "model",
            "environment",
            "waking",
        )
    ),
    ("kmq_storage.format",),
    ("kmq_storage.objects",),
    tuple(
        f"kmq_storage.log.{name}"
        for name in ("cursor", "disk_errors", "framing", "log_time", "proven_reads")
    ),
    ("kmq_storage.log.index",),
    ("kmq_storage.log.state",),
    ("kmq_storage.log.files",),
    ("kmq_storage.log.checkpoints",),
    ("kmq_storage.log.binding",),
    tuple(
        f"kmq_storage.log.{name}"
        for name in ("closed", "commit_log", "moving", "staging", "store_files", "uploads")
    ),
    ("kmq_storage.log.reading",),
    ("kmq_storage.log.bucket", "kmq_storage.log.disk"),
    ("kmq_storage.log",),  # opening either
    ("kmq_storage.maintenance",),
    tuple(f"kmq_storage.groups.{name}" for name in ("assignors", "liveness", "planning")),
    ("kmq_storage.groups.exclusive", "kmq_storage.groups.membership"),
    ("kmq_storage.groups",),  # administration
    ("kmq_storage.topics",),
    ("kmq_storage.queues.filters",),
    tuple(f"kmq_storage.queues.{name}" for name in ("handing", "looking", "lost_records", "slips")),
    ("kmq_storage.queues",),  # administration, letters
    ("kmq_storage.keyed",),
    ("kmq_storage.tracing",),
    ("kmq_storage.cloning.sharing",),
    ("kmq_storage.cloning",),
    tuple(
        f"kmq_storage.copying.{name}"
        for name in ("definitions", "deletions", "ends", "history", "queues")
    ),
    ("kmq_storage.copying.partition",),
    ("kmq_storage.copying",),
    ("kmq_storage.integrity.report", "kmq_storage.integrity.second_looks"),
    ("kmq_storage.integrity.files",),
    ("kmq_storage.integrity.remains",),
    ("kmq_storage.integrity.checks",),
    ("kmq_storage.integrity.repairs",),
    ("kmq_storage.integrity",),  # verify and repair
    ("kmq_storage.tables",),
    ("kmq_spark.errors", "kmq_spark.client.handles"),
    ("kmq_spark.client.compiled",),
    ("kmq_spark.client.records",),
    ("kmq_spark.client.encoding", "kmq_spark.client.consuming"),
    ("kmq_spark.client.typed", "kmq_spark.client.queues"),
    ("kmq_spark.client.keyed.receiving", "kmq_spark.client.keyed.values"),
    ("kmq_spark.client.sending",),
    ("kmq_spark.client.keyed", "kmq_spark.client.orderly"),
    ("kmq_spark.client",),  # the store
    ("kmq_spark.aio", "kmq_spark.lake", "kmq_spark.openmessaging", "kmq_spark.v2"),
    tuple(
        f"kmq_spark.datasource.{name}"
        for name in ("offsets", "opening", "refusal", "spark_versions", "store_url", "warning")
    ),
    ("kmq_spark.datasource.columns", "kmq_spark.datasource.groups"),
    ("kmq_spark.datasource.options",),
    ("kmq_spark.datasource.planning",),
    ("kmq_spark.datasource.streams", "kmq_spark.datasource.sink"),
    ("kmq_spark.datasource.executor",),
    ("kmq_spark.datasource.tables",),
    ("kmq_spark.datasource",),  # what Spark calls, and users
    ("kmq_spark.archive", "kmq_spark.listener", "kmq_spark.maintenance"),
    tuple(f"kmq_spark{name}" for name in (".cli", ".delta_session", ".demo", ".server", "")),
)
#: What else none of a package's modules may import.
FORBIDDEN = {
    "kmq_storage": ("pyspark", "delta"),
    # Bytes to values and back: no disk, no clock, no other process.
    "kmq_storage.format": (
        *("kmq_storage.environment", "os", "time", "datetime.datetime.now", "random"),
        *("uuid.uuid4", "pathlib", "fsspec", "threading", "subprocess", "socket"),
    ),
}
MAY_IMPORT_PYSPARK = (
    "kmq_spark.archive",
    "kmq_spark.cli.archive",
    "kmq_spark.datasource",
    "kmq_spark.delta",
    "kmq_spark.demo",
    "kmq_spark.maintenance",
)
#: Who deletes files of a store, outside `objects`: what others may refer to, only `collect` does.
MAY_DELETE = {
    "kmq_storage.cloning.clone",  # a clone that was never finished
    "kmq_storage.groups.membership",  # locks of members that are none any more
    "kmq_storage.integrity.repair",  # pins that can't be read, checkpoints behind the one kept
    "kmq_storage.integrity.repairs.manifest",  # pages that can't be read
    "kmq_storage.log.bucket.collected",  # its own marks
    "kmq_storage.log.bucket.commit_objects",  # for `collect`: commits before every checkpoint
    "kmq_storage.log.files.folder",  # for the journal: for `collect`; what was cut off, or replaced
    "kmq_storage.log.store_files",  # the identity of a store that gives way to a clone
    "kmq_storage.log.uploads",  # its own staged files, of which a signal interrupted the write
    "kmq_storage.maintenance.collect",
    "kmq_storage.maintenance.pins",  # its own pin
    "kmq_storage.maintenance.segments",  # a segment whose commit was refused
    "kmq_storage.queues.slips",  # its own slip, and what others left
}


def _within(name: str, package: str) -> bool:
    return name == package or name.startswith(f"{package}.")


def _imports_of(source: Source, *forbidden: str) -> set[str]:
    return {name for name in source.imports() for layer in forbidden if _within(name, layer)}


def _layer(name: str) -> int | None:
    """The layer of a module; None for the roots, which only hold packages, and for others' code."""
    found = [
        (len(prefix), layer)
        for layer, prefixes in enumerate(LAYERS)
        for prefix in prefixes
        if _within(name, prefix)
    ]
    return max(found)[1] if found else None


def test_every_module_has_a_layer():
    modules = {source.module for source in SOURCES} - {"kmq_storage"}
    assert {module for module in modules if _layer(module) is None} == set()


@pytest.mark.parametrize("layer", range(len(LAYERS)), ids=lambda layer: LAYERS[layer][0])
def test_imports_point_down_only(layer: int):
    wrong = {
        source.module: found
        for source in SOURCES
        if _layer(source.module) == layer
        and (found := {name for name in _needed(source.imports()) if (_layer(name) or 0) > layer})
    }
    assert wrong == {}


@pytest.mark.parametrize("package", FORBIDDEN)
def test_a_package_imports_nothing_that_its_purpose_forbids(package: str):
    wrong = {
        source.module: found
        for source in SOURCES
        if _within(source.module, package) and (found := _imports_of(source, *FORBIDDEN[package]))
    }
    assert wrong == {}


def test_only_the_spark_layer_imports_pyspark():
    wrong = [
        source.module
        for source in SOURCES
        if _imports_of(source, "pyspark")
        and not any(_within(source.module, package) for package in MAY_IMPORT_PYSPARK)
    ]
    assert wrong == []


def test_no_two_modules_import_each_other():
    modules = {source.module for source in SOURCES}
    graph = {s.module: _needed(s.imports(at_import_time=True)) & modules for s in SOURCES}
    compiled = "kmq_spark.client.compiled"
    graph[compiled] -= {compiled}  # it names its modules that aren't Python
    assert _circles(graph) == []


def _needed(imports: set[str]) -> set[str]:
    """Without the packages that are named only as the way to one of their modules."""
    modules = {source.module for source in SOURCES}
    return {
        name
        for name in imports
        if not any(other in modules and other.rpartition(".")[0] == name for other in imports)
    }


def _circles(graph: dict[str, set[str]]) -> list[list[str]]:
    found: list[list[str]] = []
    done: set[str] = set()

    def visit(module: str, way: list[str]) -> None:
        if module in way:
            found.append([*way[way.index(module) :], module])
        elif module not in done:
            for imported in sorted(graph[module]):
                visit(imported, [*way, module])
            done.add(module)

    for module in graph:
        visit(module, [])
    return found


def _python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_importing_kmq_imports_no_pyspark():
    """Nor what only those need who open a store; that needs no pyspark either."""
    code = (
        "import sys, kmq_spark; print(sorted({'pyspark', 'pyarrow'} & set(sys.modules))); "
        "kmq_spark.open('memory://x'); print('pyspark' in sys.modules)"
    )
    assert _python(code).split() == ["[]", "False"]


def test_whoever_sends_and_consumes_waits_for_no_pandas():
    """It takes a quarter of a second, and the first `pa.array()` of a process imports it."""
    code = (
        "import sys, kmq_spark; store = kmq_spark.open('memory://x'); store.create_topic('t'); "
        "producer = store.producer(); producer.send('t', b'v', key=b'k').result(); "
        "consumer = store.consumer('g', topics=['t']); "
        "print(len(consumer.consume(1, timeout=9.0)), 'pandas' in sys.modules); store.close()"
    )
    assert _python(code) == "1 False"


@pytest.mark.parametrize("order", ["none", "key", "strict"])
def test_whoever_receives_from_a_queue_waits_for_no_pandas(order: str):
    """A receive without a timeout took as long as importing it, and held up other threads."""
    code = (
        "import sys, kmq_spark; store = kmq_spark.open('memory://x'); "
        f"store.create_queue('q', order={order!r}); producer = store.producer(); "
        "producer.send_to_queue('q', b'v', key=b'k').result(); "
        "[delivery] = store.queue('q').receive(); delivery.ack(); "
        "print(store.queue('q').stats().acked, 'pandas' in sys.modules); store.close()"
    )
    assert _python(code) == "1 False"


def test_whoever_sends_with_options_or_buries_waits_for_no_pandas():
    """An orderly consumer's first dead letter held up its other partitions for as long."""
    code = (
        "import sys, kmq_spark; store = kmq_spark.open('memory://x'); store.create_topic('t'); "
        "store.create_queue('q'); producer = store.producer(); "
        "producer.send('t', b'v', uniq='1').result(); "
        "producer.send_to_queue('q', b'v', priority=9).result(); "
        "[delivery] = store.queue('q').receive(); delivery.reject('no'); "
        "print(store.queue('q').stats().dead, 'pandas' in sys.modules); store.close()"
    )
    assert _python(code) == "1 False"


def test_a_checkpoint_is_made_and_read_without_pandas(tmp_path: Path):
    """Every process that produces for a while makes them in the background."""
    make = (
        f"import sys, kmq_spark; store = kmq_spark.open({str(tmp_path / 's')!r}); "
        "store.create_topic('t'); store.create_queue('q', topics=['t']); "
        "store.producer().send_batch('t', [b'1', b'2']).result(); "
        "store.producer().send('t', b'3', uniq='3').result(); store.queue('q').receive(2); "
        "store.seal(); print(store.checkpoint().pages, 'pandas' in sys.modules); store.close()"
    )
    read = (
        f"import sys, kmq_spark; store = kmq_spark.open({str(tmp_path / 's')!r}); "
        "made = store.maintain(); print(store.queue('q').stats().locked, 'pandas' in sys.modules)"
    )
    assert _python(make) == "1 False"
    assert _python(read) == "2 False"


#: Calls of ordinary life, each after those before it.
_ORDINARY = """
topic = store.create_topic('t', partitions=2)
producer.send('t', b'1', key='k', headers={'h': b'x'}, properties={'n': 1}).result()
producer.send('t', b'1', headers=[('h', b'x'), ('h', None)], properties={'n': 1, 's': 'x'}).result()
producer.send_batch('t', [b'1'] * 9, keys=[None, *'abcdefgh']).result()
producer.send_arrow('t', columns(value=b'12', key=b'ab')).result()
list(store.find('t', key='k', headers={'h': b'x'}, properties={'n': 1}))
list(store.read('t'))
store.consumer('g', topics=['t']).consume_arrow(9, timeout=9.0)
store.set_group_offsets('h', {'t': {0: 1}})
store.consumer('h', topics=['t']).lag()
with store.producer(transactional_id='x').transaction() as sends: sends.send('t', b'1')
store.create_queue('q', order='key')
store.bind_queue('q', 't', filter="n >= 1 and not s = 'x'")
store.queue('q').receive_arrow()
producer.send_to_queue('q', b'1').result()
producer.send_to_queue('q', b'1', key=b'k').result()
store.queue('q').ack(store.queue('q').receive_arrow())
store.queue('q').state()
store.create_topic('y', schema=pa.schema([('at', pa.timestamp('us', 'UTC')), ('s', pa.string())]))
list(store.read('y'))
keyed = store.keyed_queues('k')
keyed.put('a', b'1').result()
keyed.put_batch(['a', 'b'], [b'1', '2'])
keyed.put_arrow(columns(queue=b'ab', value=b'12'))
keyed.get('a', 0, 9), keyed.get_arrow('a', 0, 9), keyed.get_many(['a', 'b'], 0, 9)
keyed.size('a'), keyed.span('b'), keyed.names()
keyed.ack(keyed.receive('a'))
keyed.delete('b')
store.seal()
store.verify(deep=True)
list(store.find('t', key='k')), list(store.read('t'))
keyed.get('a', 0, 9), keyed.size('b'), keyed.names()
"""


def test_the_first_call_of_an_ordinary_kind_waits_for_no_pandas(tmp_path: Path):
    code = f"""
import sys, kmq_spark, pyarrow as pa
from kmq_storage.format.binary_columns import binary_column
def columns(**letters):
    arrays = [binary_column([bytes([each]) for each in some]) for some in letters.values()]
    return pa.RecordBatch.from_arrays(arrays, list(letters))
store = kmq_spark.open({str(tmp_path / "s")!r})
producer = store.producer()
for line in {_ORDINARY!r}.strip().splitlines():
    exec(line)
    if 'pandas' in sys.modules:
        sys.exit(line)
producer.close()
store.close()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_command_begins_without_pandas():
    """It would take as long as all else that a command imports."""
    code = "import sys, kmq_spark.cli.command_line; print('pandas' in sys.modules)"
    assert _python(code) == "False"


def test_importing_kmq_starts_no_thread():
    code = (
        "import threading, pyarrow; before = threading.active_count(); import kmq_spark; "
        "kmq_spark.Store; "
        "print(threading.active_count() - before)"
    )
    assert _python(code) == "0"


def test_a_streaming_read_imports_neither_client_nor_writer_nor_what_only_an_archive_needs():
    """Spark starts processes for each query, and the query waits until they have imported it."""
    code = (
        "import sys, pyspark.sql.datasource, pyspark.sql.types; before = set(sys.modules); "
        "import kmq_spark.datasource.source, kmq_spark.datasource.spark_versions; "
        "import kmq_spark.datasource.stream_reader; "
        "heavy = {'pandas', 'fsspec', 'asyncio', 'ssl', 'pyarrow.compute', 'pyarrow.dataset', "
        "'pyarrow.parquet', 'kmq_spark.client.sending.producer', "
        "'kmq_spark.client.consuming.consumer', "
        "'kmq_spark.datasource.writer', 'kmq_spark.archive'}; "
        "print(sorted(heavy & (set(sys.modules) - before)))"
    )
    assert _python(code) == "[]"


def test_files_are_deleted_by_those_few_who_know_that_nobody_refers_to_them():
    deleting = {
        source.module
        for source in SOURCES
        if _within(source.module, "kmq_storage")
        and not _within(source.module, "kmq_storage.objects")
        and any(
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            # A set's `discard` takes an item, a lock's deletes its own file.
            and (node.func.attr == "remove" or (node.func.attr == "discard" and not node.args))
            for node in ast.walk(source.tree)
        )
    }
    assert deleting == MAY_DELETE
