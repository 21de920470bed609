"""`kmq serve` and its clients: who is refused, and who is left."""

from __future__ import annotations

import socket
import time
from contextlib import suppress
from typing import Any

import pytest

from kmq_spark.server import listening as edge
from kmq_spark.server.listening import Listener, names_of
from tests.support.waiting import until
from tests.unit.server.made import ask, listening


def _sent_raw(listener: Listener, request: bytes) -> bytes:
    with socket.create_connection((listener.host, listener.port), timeout=60) as client:
        client.sendall(request)
        return b"".join(iter(lambda: client.recv(65_536), b""))


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "CONNECT", "BREW"])
def test_no_other_method_is_allowed(served: Listener, method: str):
    status, headers, content = ask(served, "/", method=method)
    assert (status, headers["Allow"], content.count(b"\n")) == (405, "GET, HEAD", 1)


@pytest.mark.parametrize("name", ["localhost", "LocalHost", "127.0.0.1", "[::1]"])
def test_who_asks_for_this_machine_is_answered_also_through_a_tunnel(served: Listener, name: str):
    for host in (f"{name}:{served.port}", f"{name}:1", name):
        assert ask(served, "/health", Host=host)[0] == 200


@pytest.mark.parametrize(
    "name", ["evil.example:{}", "localhost.evil.example:{}", "127.0.0.1:x", "::1", "", "[::1", ":1"]
)
def test_a_name_that_was_made_to_lead_here_is_refused(served: Listener, name: str):
    status, _, content = ask(served, "/tables/topics", Host=name.format(served.port))
    assert (status, b"orders" in content) == (421, False)


def test_no_name_and_two_names_are_refused(served: Listener):
    good = f"Host: localhost:{served.port}\r\n".encode()
    for headers in (b"", good + good):
        answer = _sent_raw(served, b"GET / HTTP/1.1\r\n" + headers + b"\r\n")
        assert answer.startswith(b"HTTP/1.0 421 "), headers


def test_only_who_listens_to_this_machine_alone_asks_for_a_name():
    here = {"localhost", "127.0.0.1", "[::1]"}
    assert names_of("127.0.0.1") == here
    assert names_of("::1") == here
    assert names_of("127.8.0.1") == {*here, "127.8.0.1"}
    assert names_of("::ffff:127.0.0.1") == {*here, "[::ffff:127.0.0.1]"}
    assert names_of("0.0.0.0") is names_of("::") is names_of("192.0.2.1") is None


def test_who_listens_to_all_answers_to_every_name(url: str):
    with listening(url, "0.0.0.0") as listener:
        assert ask(listener, "/health", Host="shop.example")[0] == 200


TOO_LONG = {
    "line": (b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n", b"414"),
    "header": (b"GET / HTTP/1.1\r\nA: " + b"a" * 70_000 + b"\r\n\r\n", b"431"),
    "headers": (b"GET / HTTP/1.1\r\n" + b"A: a\r\n" * 200 + b"\r\n", b"431"),
    "nonsense": (b"\x16\x03\x01 hello you there\r\n\r\n", b"400"),
    "version": (b"GET / HTTP/9.9\r\n\r\n", b"505"),
}


@pytest.mark.parametrize(("request_", "status"), TOO_LONG.values(), ids=TOO_LONG.keys())
def test_what_is_too_long_or_no_request_is_refused_in_a_line(
    served: Listener, request_: bytes, status: bytes
):
    answer = _sent_raw(served, request_)
    assert answer.split()[1] == status
    assert answer.split(b"\r\n\r\n")[1].count(b"\n") == 1
    assert b"Traceback" not in answer


def test_clients_that_say_nothing_keep_nobody_waiting_and_are_left(
    url: str, monkeypatch: pytest.MonkeyPatch
):
    set_up, setup = list[None](), edge._Handler.setup
    with listening(url) as listener:
        with monkeypatch.context() as patch:  # who asks may take its time
            patch.setattr(edge._Handler, "timeout", 0.5)
            patch.setattr(edge._Handler, "setup", lambda each: set_up.append(setup(each)))
            silent = [socket.create_connection((listener.host, listener.port)) for _ in range(20)]
            until(lambda: len(set_up) == 20)
        assert ask(listener, "/health")[0] == 200
        assert [client.recv(1) for client in silent] == [b""] * 20
        for client in silent:
            client.close()


def test_a_client_that_sends_a_byte_now_and_then_is_left_too(
    url: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(edge, "_CONNECTION_SECONDS", 0.5)
    with (
        listening(url) as listener,
        socket.create_connection((listener.host, listener.port), timeout=0.05) as client,
        pytest.raises(OSError),  # it is closed, or reset where a byte was on its way
    ):
        client.sendall(b"GET /")
        while True:
            client.sendall(b"a")
            try:
                if client.recv(1) == b"":
                    raise ConnectionError
            except TimeoutError:
                pass


def test_one_connection_too_many_is_closed_at_once(url: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(edge, "_CONNECTIONS", 2)
    with listening(url) as listener:
        address = (listener.host, listener.port)
        with (
            socket.create_connection(address),
            socket.create_connection(address),
            socket.create_connection(address, timeout=60) as third,
        ):
            assert third.recv(1) == b""
        while listener._begun:  # until it is noticed that they went
            time.sleep(0.01)
        assert ask(listener, "/health")[0] == 200


def test_who_takes_nothing_does_not_keep_it_from_ending(url: str):
    with listening(url) as listener:
        client = socket.create_connection((listener.host, listener.port))
        client.sendall(f"GET / HTTP/1.1\r\nHost: localhost:{listener.port}\r\n".encode())
    with client, suppress(ConnectionResetError):  # it is closed, or reset where it sent more
        assert client.recv(1) == b""


def test_a_defect_is_told_where_it_runs_and_not_to_the_client(
    served: Listener, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    def fails(*_: Any) -> Any:
        raise ZeroDivisionError("a secret")

    monkeypatch.setattr(edge, "answer", fails)
    status, _, content = ask(served, "/")
    assert (status, b"secret" in content, content.count(b"\n")) == (500, False, 1)
    monkeypatch.undo()
    assert ask(served, "/health")[0] == 200
    told: list[str] = []

    def is_told() -> bool:  # by the thread of the request, after its answer
        told.append(capsys.readouterr().err)
        return "ZeroDivisionError: a secret" in "".join(told)

    until(is_told, 60)
