"""The handler of a signal closes handles, in the middle of a call that holds the log's locks."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

import kmq_spark as kmq
from kmq_spark import openmessaging, v2
from kmq_spark.client.handles.apart import closes_apart
from kmq_storage.log.disk.written_end import WrittenEnd
from tests.support.handlers import on_usr1


def _succeed(*_: object) -> kmq.OrderlyStatus:
    return kmq.OrderlyStatus.SUCCESS


class _Handles:
    def __init__(self, folder: Path, durability: str) -> None:
        self.store = kmq.open(folder, maintenance=False, durability=durability)
        self.store.create_topic("t", exist_ok=True)
        self.store.create_queue("q", exist_ok=True)
        self.producer = self.store.producer()
        self.queue = self.store.queue("q")
        self.keyed = self.store.keyed_queues("k")
        self.consumer = self.store.consumer("g", topics=["t"], auto_commit=True)
        self.orderly = self.store.orderly_consumer("o", ["t"], _succeed)
        self.orderly.start()
        self.v2 = v2.KmqBroker(self.store).create_consumer()
        self.v2.subscribe("t")


def _transaction(handles: _Handles) -> None:
    with handles.producer.transaction() as tx:
        tx.send("t", b"v")


def _nack(handles: _Handles) -> None:
    handles.producer.send_to_queue("q", b"v").result()
    for delivery in handles.queue.receive(timeout=10.0):
        delivery.nack()


_CALLS: dict[str, Callable[[_Handles], object]] = {
    "send": lambda handles: handles.producer.send("t", b"v").result(),
    "transaction": _transaction,
    "nack": _nack,
    "put": lambda handles: handles.keyed.put("k", b"v").result(),
    "create_topic": lambda handles: handles.store.create_topic("t2"),
}


@contextmanager
def _signals_in_commits(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Each first commit of the main thread is interrupted, while it holds the locks."""
    write = WrittenEnd.write
    armed = [True]

    def interrupted(*arguments: Any, **options: Any) -> Any:
        if threading.current_thread() is threading.main_thread() and armed:
            armed.clear()
            signal.raise_signal(signal.SIGUSR1)
        return write(*arguments, **options)

    with monkeypatch.context() as patched:
        patched.setattr(WrittenEnd, "write", interrupted)
        yield
    assert not armed


def _wait_for_closing() -> None:
    for thread in threading.enumerate():
        if thread.name == "kmq-close":
            thread.join()


@pytest.mark.timeout(30)
@pytest.mark.parametrize("durability", ["fsync", "os"])
@pytest.mark.parametrize(
    "closed", ["producer", "queue", "keyed", "consumer", "orderly", "v2", "store"]
)
@pytest.mark.parametrize("call", _CALLS)
def test_a_handler_may_close_a_handle_in_the_middle_of_a_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, closed: str, durability: str
):
    handles = _Handles(tmp_path, durability)
    handle = getattr(handles, closed)
    with ExitStack() as cleaning:
        cleaning.callback(handles.store.close)
        cleaning.callback(_wait_for_closing)
        cleaning.enter_context(on_usr1(handle.close))
        with _signals_in_commits(monkeypatch), suppress(kmq.ClosedError):
            _CALLS[call](handles)
    with pytest.raises(kmq.ClosedError):
        handle._check_open()
    with kmq.open(tmp_path, maintenance=False) as again:
        assert again.verify(deep=True).ok


def test_what_is_pending_when_a_handler_closes_is_stored_before_the_next_close_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    handles = _Handles(tmp_path, "fsync")
    sent = handles.producer.send("t", b"pending")
    try:
        with on_usr1(handles.store.close), _signals_in_commits(monkeypatch):
            handles.store.create_topic("t2")
    finally:
        handles.store.close()
    assert sent.done()
    assert sent.result().offset == 0


@pytest.mark.timeout(30)
def test_a_handler_may_shut_a_producer_of_openmessaging_down_while_it_shuts_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    producer = openmessaging.Producer(openmessaging.KeyValue().put("STORE_PATH", str(tmp_path)))
    producer.send_oneway(producer.create_bytes_message_to_topic("t", b"v"))
    leave = kmq.Store.__exit__

    def interrupted(store: kmq.Store, *raised: object) -> None:
        signal.raise_signal(signal.SIGUSR1)
        leave(store, *raised)

    with on_usr1(producer.shutdown), monkeypatch.context() as patched:
        patched.setattr(kmq.Store, "__exit__", interrupted)
        producer.shutdown()
    with kmq.open(tmp_path, maintenance=False) as again:
        assert again.offsets("t") == {0: (0, 1)}


class _Handle:
    def __init__(self) -> None:
        self.closers: list[str] = []

    @closes_apart
    def close(self) -> None:
        self.closers.append(threading.current_thread().name)


def test_a_handler_that_interrupted_no_call_of_kmq_closes_by_itself():
    handle = _Handle()
    with on_usr1(handle.close):
        signal.raise_signal(signal.SIGUSR1)
    assert handle.closers == ["MainThread"]


def test_a_callback_closes_by_itself(tmp_path: Path):
    handle = _Handle()
    with kmq.open(tmp_path, maintenance=False) as store:
        store.create_topic("t")
        with store.consumer("g") as consumer:
            consumer.subscribe(["t"], on_assign=lambda _: handle.close())
            consumer.poll()
    assert handle.closers == ["MainThread"]


@pytest.mark.timeout(30)
def test_a_handler_may_shut_down_a_producer_of_openmessaging(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    producer = openmessaging.Producer(openmessaging.KeyValue().put("STORE_PATH", str(tmp_path)))
    producer.send(producer.create_bytes_message_to_topic("t", b"first"))
    with on_usr1(producer.shutdown), _signals_in_commits(monkeypatch), suppress(kmq.ClosedError):
        producer.send(producer.create_bytes_message_to_topic("another", b"makes its topic"))
    _wait_for_closing()
    with kmq.open(tmp_path) as store:
        assert store.describe_topic("t").rows == 1
