"""Options of a bucket's client that are wrong.

Finds: panics of the client library, errors that don't say which option, and values, which may be
secrets, in messages.
"""

from __future__ import annotations

import os
from typing import Any

import pytest

import kmq_spark as kmq
from kmq_storage.objects.credentials import check_url, without_secrets
from kmq_storage.objects.obstore_bucket import client_of, open_obstore
from tests.support.s3 import S3Server

pytest.importorskip("obstore")

SECRET = "hush-hush-0123"
_OPENS = {
    "s3": {"access_key_id": "key", "secret_access_key": SECRET},
    "az": {"account_name": "a", "account_key": "a2V5"},
    "gs": {"skip_signature": "true"},
}
GOOD = {"access_key_id": "key", "secret_access_key": SECRET, "endpoint": "http://127.0.0.1:9"}


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        (SECRET, "mapping"), (5, "mapping"), ({1: SECRET}, "names are text"),
        ({"region": 5}, "region"), ({"secret_access_key": b"x"}, "secret_access_key"),
        ({"endpoint": "not a url"}, "endpoint"), ({"endpoint": ""}, "endpoint"),
        ({"endpoint": "127.0.0.1:9"}, "endpoint"), ({"endpoint_url": "http://"}, "endpoint"),
        ({"endpoint": f"ftp://{SECRET}@x"}, "endpoint"),
        ({"access_key_id": "a\nb"}, "access_key_id holds a line break"),
        ({"session_token": "caf\u00e9"}, "session_token"),
        ({"acces_key_id": SECRET}, r"'acces_key_id' is unknown \(did you mean 'access_key_id'\?\)"),
        ({"client_kwargs": {"region_nam": "x"}}, "did you mean 'region_name'"),
        ({"client_kwargs": 5}, "client_kwargs"), ({"client_options": 5}, "mapping"),
        ({"client_options": {"timeot": "5 s"}}, "did you mean 'timeout'"),
        ({"client_options": {"timeout": 5}}, "client_options.timeout"),
        ({"timeout": 5}, "client_options.timeout"), ({"timeout": "soon"}, "Duration"),
        ({"allow_http": 1}, "client_options.allow_http"),
        ({"timeout": "5s", "client_options": 5}, "mapping"),
        ({"credential_provider": 5}, "credential_provider"),
        ({"retry_config": {"max_retries": 1}}, "retry_config"),
        ({"cache_folder": 5}, "cache_folder"),
        ({"cache_folder": ""}, "cache_folder is a path, not an empty text"),
        ({"cache_folder": __file__}, "cache_folder .* is no folder"),
        ({"cache_bytes": True}, "cache_bytes is a number of bytes, not bool"),
        ({"cache_bytes": SECRET}, "cache_bytes is a number of bytes, not other text"),
        ({"cache_folder_bytes": -1}, "cache_folder_bytes is a number of bytes, not a negative"),
    ],
)  # fmt: skip
def test_a_wrong_option_is_named_and_no_value_shown(wrong: Any, named: str):
    options = {**GOOD, **wrong} if isinstance(wrong, dict) else wrong
    with pytest.raises(kmq.InvalidRequestError, match=named) as refused:
        kmq.open("s3://bucket/store", storage_options=options)
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"allow_http": "true"}, {"allow_http": "true"}),
        ({"AWS_ALLOW_HTTP": True}, {"allow_http": True}),
        ({"timeout": "5s", "user_agent": "me"}, {"timeout": "5s", "user_agent": "me"}),
        ({"timeout": "5s", "client_options": {"timeout": "9s"}}, {"timeout": "9s"}),
        ({"client_kwargs": {"connect_timeout": "5s"}}, {"connect_timeout": "5s"}),
    ],
)
def test_what_the_http_client_is_told_may_stand_beside_the_other_options(
    given: dict[str, Any], expected: dict[str, Any]
):
    others = {"access_key_id": "key", "secret_access_key": SECRET}
    assert client_of({**others, **given}) == (others, expected)
    for url in ("s3://bucket/store", "az://bucket/store", "gs://bucket/store"):
        open_obstore(url, _OPENS[url[:2]] | given)


def test_a_panic_of_the_client_library_is_an_error_of_options(monkeypatch: pytest.MonkeyPatch):
    class PanicException(BaseException):
        pass

    def panic(*_: object, **options: object) -> None:
        raise PanicException(f"no {SECRET}")

    def interrupt(*_: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("obstore.store.from_url", panic)
    with pytest.raises(kmq.InvalidRequestError, match=r"can't be opened: no \*\*\*"):
        kmq.open("s3://bucket/store", storage_options=GOOD)
    monkeypatch.setattr("obstore.store.from_url", interrupt)
    with pytest.raises(KeyboardInterrupt):
        kmq.open("s3://bucket/store", storage_options=GOOD)


def test_an_option_of_another_scheme_is_not_what_was_meant():
    with pytest.raises(kmq.InvalidRequestError, match="'account_name' is unknown") as refused:
        kmq.open("gs://bucket/store", storage_options={"account_name": "x"})
    assert "did you mean 'account_name'" not in str(refused.value)


def test_options_for_a_store_in_a_folder_are_refused_by_their_names():
    with pytest.raises(kmq.InvalidRequestError, match=r"\(region, secret_access_key\)") as refused:
        kmq.open("shop", storage_options={"secret_access_key": SECRET, "region": "eu"})
    assert SECRET not in str(refused.value)


def test_a_wrong_endpoint_of_the_environment_is_refused_too(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "nowhere")
    options = {name: value for name, value in GOOD.items() if name != "endpoint"}
    with pytest.raises(kmq.InvalidRequestError, match="endpoint"):
        kmq.open("s3://bucket/store", storage_options=options)


def test_the_container_in_a_url_of_azure_is_no_secret_and_a_password_there_is_one():
    check_url("abfss://container@account.dfs.core.windows.net/shop")
    for secret in ("abfss://container:word@account/shop", "s3://key@bucket/shop", "abfs://a@b@c/d"):
        with pytest.raises(kmq.InvalidRequestError, match="no credentials"):
            check_url(secret)


@pytest.mark.parametrize("from_environment", [False, True])
def test_credentials_in_an_endpoint_show_in_no_error(
    monkeypatch: pytest.MonkeyPatch, from_environment: bool
):
    options: dict[str, Any] = {
        **GOOD,
        "endpoint": f"http://user:{SECRET}@127.0.0.1:9",
        "client_options": {"timeout": "500ms", "connect_timeout": "300ms"},
    }
    if from_environment:
        monkeypatch.setenv("AWS_ENDPOINT_URL", options.pop("endpoint"))
    with pytest.raises(kmq.UnavailableError, match=r"http://\*\*\*@127.0.0.1:9") as refused:
        kmq.open("s3://bucket/store", storage_options=options)
    assert SECRET not in str(refused.value)


def test_a_message_is_cut_behind_its_secrets():
    for text in (f"{'.' * 290}{SECRET}", f"http://u:{SECRET[:4]}?{SECRET[4:]}@x"):
        assert SECRET[:4] not in without_secrets(text, frozenset({SECRET}))


def test_of_a_secret_that_begins_as_another_one_does_nothing_shows():
    secrets = [f"minio{'x' * n}" for n in range(9)]  # in a set they have any order
    for secret in secrets:
        assert without_secrets(f"key {secret} refused", frozenset(secrets)) == "key *** refused"


def test_a_message_says_what_is_wrong_behind_a_query_and_not_who_asked():
    answer = f"<?xml ?>\n<Error><Code>NoSuchBucket</Code><Key>{SECRET}</Key></Error>"
    failed = f"GET http://host/bucket?prefix=x&Signature={SECRET} in 3 ms - 404 Not Found: {answer}"
    shown = without_secrets(failed, frozenset())
    assert shown == "GET http://host/bucket in 3 ms - 404 Not Found: NoSuchBucket"
    assert SECRET not in without_secrets(failed.replace("?xml ?>\n<", ""), frozenset())


def test_a_bucket_that_does_not_exist_is_told_by_its_cause(moto: S3Server):
    with pytest.raises(kmq.UnavailableError, match="404 Not Found: NoSuchBucket"):
        kmq.open("s3://no-such-bucket/shop", storage_options=moto.options())


def test_who_has_no_credentials_is_told_so(monkeypatch: pytest.MonkeyPatch):
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    options = {
        "endpoint": "http://127.0.0.1:9",
        "client_options": {"proxy_url": "http://127.0.0.1:9"},  # nor does the machine have any
    }
    with pytest.raises(kmq.UnavailableError, match="neither storage_options nor the environment"):
        kmq.open("s3://bucket/store", storage_options=options)
