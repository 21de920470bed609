"""What is compiled where there is a compiler does the same where there is none."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from sysconfig import get_config_var
from typing import Any

import pytest
from hatchling.bridge.app import Application

import hatch_build
from tests.support.sources import ROOT

#: The modules that the build compiles, without their endings.
_COMPILED = [
    "kmq_spark/client/compiled/brief_lock",
    "kmq_spark/client/compiled/adding",
    "kmq_spark/client/compiled/packing",
    "kmq_spark/client/compiled/packed_rows",
    "kmq_spark/client/compiled/unpacking",
    "kmq_spark/openmessaging/key_value",
    "kmq_spark/openmessaging/message",
    "kmq_spark/openmessaging/stored",
]

#: How a program runs without what is compiled.
_EITHER_WAY = """
import json, sys
from importlib.machinery import FileFinder, SourceFileLoader
if sys.argv[2] == "python":
    plain = FileFinder.path_hook((SourceFileLoader, [".py"]))
    sys.path_hooks.insert(0, lambda path: plain(path) if "kmq_spark" in path else no(path))
    def no(path): raise ImportError(path)
"""

#: Sends and reads messages, by both APIs, and says what came and what it ran with.
_PROGRAM = """
import kmq_spark as kmq
from kmq_spark import openmessaging as oms
from kmq_spark.client import compiled
path = sys.argv[1]
settings = oms.KeyValue().put("STORE_PATH", path)
with kmq.open(path) as store, store.producer() as producer:
    store.create_topic("plain")
    for n in range(40):
        headers, properties = {"a": b"x", "none": None}, {"n": n, "f": n / 2, "t": "é", "b": True}
        producer.send("plain", b"v%d" % n, key=b"k", headers=headers, properties=properties)
    producer.flush()
    records = list(store.consumer(topics=["plain"]).consume(max_records=40, timeout=5.0))
    rows = store.read("plain", columns=["key", "value", "headers", "properties"]).read_all()
with oms.Producer(settings) as producer, oms.PullConsumer(settings) as consumer:
    consumer.attach_queue("q", ["t"])
    for n in range(40):
        make, name = producer.create_bytes_message_to_topic, "t"
        if n % 2:
            make, name = producer.createBytesMessageToQueue, "q"
        message = make(name, b"b%d" % n).put_headers("TraceId", f"t{n}")
        message.putHeaders("Number", n).put_headers("Quoted", str(n)).put_properties("p", n / 4)
        producer.send(message)
    producer.flush()
    messages = []
    while (message := consumer.poll()) is not None:
        headers = dict(message.headers().values)
        del headers["BornTimestamp"], headers["StoreTimestamp"]
        messages.append((repr(message.get_body()), headers, message.properties().values))
print(json.dumps({
    "compiled": [compiled.is_there, oms.KeyValue.__init__.__class__.__name__],
    "records": [repr((r.key, r.value, r.headers, dict(r.properties))) for r in records],
    "rows": repr(rows.to_pylist()),
    "messages": messages,
}))
"""

#: Writes what may be pickled, and reads what the other way has written.
_PICKLES = """
import pickle
from pathlib import Path
from kmq_spark import openmessaging as oms
from kmq_spark.openmessaging.message import BytesMessage
class Own(oms.KeyValue): pass
own = Own({"k": 2})
own.more = 3
given = [oms.KeyValue({"k": 1}), BytesMessage(b"body", {"h": 1}, {"p": 2}), own]
Path("pickled").write_bytes(pickle.dumps(given))
other = Path("..", {"python": "compiled", "compiled": "python"}[sys.argv[2]], "pickled")
values, message, own = pickle.loads(other.read_bytes()) if other.exists() else given
print(json.dumps([
    values.values, repr(message), message.properties().values, message.sent, own.values, own.more,
]))
"""


def _run(tmp_path: Path, way: str, program: str = _PROGRAM) -> Any:
    done = subprocess.run(
        [sys.executable, "-c", _EITHER_WAY + program, "store", way],
        cwd=tmp_path / way,
        env={"PYTHONPATH": f"{ROOT}:{ROOT / 'storage'}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.replace(str(tmp_path / way), "HERE"))


def _built(module: str) -> Path:
    return hatch_build._built(ROOT / module)


@pytest.mark.skipif(not _built(_COMPILED[0]).exists(), reason="nothing compiled it")
def test_messages_are_the_same_with_and_without_what_is_compiled(tmp_path: Path):
    for way in ("python", "compiled"):
        (tmp_path / way).mkdir()
    python, compiled = _run(tmp_path, "python"), _run(tmp_path, "compiled")
    assert python.pop("compiled") == [False, "function"]
    assert compiled.pop("compiled") == [True, "wrapper_descriptor"]
    assert python == compiled


@pytest.mark.skipif(not _built(_COMPILED[0]).exists(), reason="nothing compiled it")
def test_what_one_way_has_pickled_the_other_one_reads(tmp_path: Path):
    for way in ("python", "compiled"):
        (tmp_path / way).mkdir()
    runs = [_run(tmp_path, way, _PICKLES) for way in ("compiled", "python", "compiled")]
    assert runs[0] == runs[1] == runs[2]


@pytest.mark.skipif(not (os.environ.get("CI") and shutil.which("cc")), reason="may be missing")
def test_an_install_on_a_machine_with_a_compiler_compiles():
    assert [module for module in _COMPILED if not _built(module).exists()] == []


def test_what_is_older_than_its_source_is_not_run_where_it_can_not_be_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Modules of two versions would take each other's memory for what it is not."""
    suffix = get_config_var("EXT_SUFFIX")
    built = tmp_path / f"m{suffix}"
    built.touch()
    os.utime(built, (1, 1))
    (tmp_path / "m.py").write_text("new = True\n")
    monkeypatch.setattr(hatch_build, "_SOURCES", ("m.py",))
    monkeypatch.setenv("CC", "/nonexistent")
    build_data: dict[str, Any] = {"artifacts": []}
    nothing: Any = None
    hatch_build.CompilingHook(
        str(tmp_path), {}, nothing, nothing, "", "wheel", Application()
    ).initialize("standard", build_data)
    assert build_data == {"artifacts": []}
    assert not built.exists()


@pytest.mark.parametrize("module", _COMPILED)
def test_what_is_compiled_is_not_older_than_its_source(module: str):
    """Else this clone runs what it does not show: install it again (CONTRIBUTING.md)."""
    sources = [p for p in ROOT.glob(f"{module}.p*") if p.suffix in (".py", ".pyx", ".pxd")]
    built = _built(module)
    assert not built.exists() or built.stat().st_mtime >= max(s.stat().st_mtime for s in sources)
