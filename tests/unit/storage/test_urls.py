"""Finds texts that name another place than the user means."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

import pytest

import kmq_spark as kmq
from kmq_storage.errors import InvalidRequestError
from kmq_storage.objects.credentials import check_url


def test_a_file_url_of_one_slash_is_the_same_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    with kmq.open(tmp_path / "shop") as store:
        store.create_topic("orders")
    for url in (f"file:{tmp_path}/shop", f"FILE:{tmp_path}/shop", f"file://{tmp_path}/shop"):
        with kmq.open(url, create=False) as store:
            assert [topic.name for topic in store.topics()] == ["orders"]
    assert [path.name for path in tmp_path.iterdir()] == ["shop"]


@pytest.mark.parametrize(
    "url", ["s3:/bucket/shop", "memory:shop", "file:shop", "gs:bucket", "dbfs:/shop"]
)
def test_a_url_without_its_slashes_is_no_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str
):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidRequestError, match="without its slashes"):
        kmq.open(url)
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("url", ["my_cloud://bucket/shop", "s3_://shop", "1s3://shop", "é://shop"])
def test_a_url_of_a_scheme_that_cannot_be_one_is_no_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str
):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidRequestError, match="is not one for stores"):
        kmq.open(url)
    assert not [*tmp_path.iterdir()]
    with kmq.open(f"./{url}") as store:
        assert Path(store.url) == tmp_path / url.replace("//", "/")


@pytest.mark.parametrize(
    ("scheme", "module", "better"), [("s3a", "s3fs", "s3"), ("gcs", "gcsfs", "gs")]
)
def test_a_scheme_whose_client_is_missing_has_a_name_that_needs_none(
    monkeypatch: pytest.MonkeyPatch, scheme: str, module: str, better: str
):
    monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.delitem(import_module("fsspec.registry")._registry, scheme, False)
    with pytest.raises(InvalidRequestError, match=f"write {better}://"):
        kmq.open(f"{scheme}://bucket/shop")


def test_options_that_a_client_does_not_take_are_refused_with_the_name_that_takes_them():
    pytest.importorskip("s3fs")
    with pytest.raises(InvalidRequestError, match="argument 'endpoint', or write s3://"):
        kmq.open("s3a://bucket/shop", storage_options={"endpoint": "http://127.0.0.1:9"})


@pytest.mark.parametrize("url", ["s3://", "gs:///", "memory://", "file:///", "other://"])
def test_a_url_that_ends_behind_its_scheme_names_no_place(url: str):
    with pytest.raises(InvalidRequestError, match="names no place"):
        kmq.open(url)


def test_a_relative_path_in_a_folder_that_is_gone_is_refused_and_an_absolute_one_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(InvalidRequestError, match="give an absolute path"):
        kmq.open("shop")
    kmq.open(tmp_path / "shop").close()


def test_the_home_of_nobody_is_no_path():
    with pytest.raises(InvalidRequestError, match="is no path"):
        kmq.open("~nobody-of-this-name/shop")


@pytest.mark.parametrize(
    "url",
    [
        "s3://AKIA1:hush@bucket/p", "s3://AKIA1:hush/ret@bucket/p", "s3://AKIA1:a?hush@bucket/p",
        "s3://AKIA1:a#hush@bucket", "s3://bucket/p?secret=a@hush", "s3:AKIA1:hush@bucket",
        "s3:/AKIA1:hush/ret@bucket/p", "file://user:hush@host/p", "sftp://user:hush/x@host/p",
    ],
)  # fmt: skip
def test_credentials_in_a_url_are_refused_and_not_shown(url: str):
    with pytest.raises(InvalidRequestError) as refused:
        kmq.open(url)
    assert "hush" not in f"{refused.value} {refused.value.context}"


@pytest.mark.parametrize("url", ["s3://bucket/team@home/shop", "hdfs://host:8020/a@b"])
def test_a_path_may_have_an_at_sign(url: str):
    check_url(url)


@pytest.mark.parametrize(
    "url", ["memory://a?1", "memory://a#2", "file:///tmp/a?b", "file:///tmp/a#b"]
)
def test_a_query_or_a_fragment_is_refused_and_makes_no_store_of_another_name(url: str):
    with pytest.raises(kmq.InvalidRequestError, match="no query or fragment"):
        kmq.open(url)


def test_a_store_in_memory_is_the_same_with_a_slash_at_its_end_as_one_elsewhere_is(tmp_path: Path):
    for url in (f"memory://{tmp_path.name}/shop", str(tmp_path / "shop"), f"file://{tmp_path}/s"):
        with kmq.open(url) as store, kmq.open(f"{url}/") as same:
            store.create_topic("t")
            assert [topic.name for topic in same.topics()] == ["t"]


def test_a_file_system_that_somebody_registered_with_fsspec_is_a_place_for_a_store():
    fsspec = pytest.importorskip("fsspec")
    memory = type(fsspec.filesystem("memory"))

    class Ours(memory):  # type: ignore[misc, valid-type]
        """Looks and then writes, whatever is asked for."""

        protocol, store = "ours", {}

        def pipe_file(self, path: str, value: bytes, **_: object) -> None:
            super().pipe_file(path, value)

    fsspec.register_implementation("ours", Ours, clobber=True)
    with kmq.open("ours://bucket/shop") as store:
        store.create_topic("orders")
        store.producer().send("orders", b"1").result()
        with (
            kmq.open("ours://bucket/shop") as other,
            pytest.raises(kmq.IllegalStateError, match="one writer at a time"),
        ):
            other.create_topic("more")
    with kmq.open("ours://bucket/shop", read_only=True) as store:
        assert store.read("orders").read_all()["value"].to_pylist() == [b"1"]
