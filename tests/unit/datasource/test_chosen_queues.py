"""Option `queues`: every name and every beginning of names can be written.

Finds: queues that can't be chosen because their names have commas or brackets, or are no text.
"""

from __future__ import annotations

import pytest

from kmq_spark.datasource.options.values import queues
from kmq_spark.errors import InvalidRequestError
from kmq_storage.keyed.wanted import WantedQueues


@pytest.mark.parametrize(
    ("text", "names", "prefixes"),
    [
        ('[{"prefix": "a, b"}]', [], [b"a, b"]),
        ('[{"prefix": "[x]*"}, "c"]', [b"c"], [b"[x]*"]),
        ('["c", {"prefix": {"base64": "/w=="}}]', [b"c"], [b"\xff"]),
        ('[{"base64": "/w=="}, {"prefix": "ü"}]', [b"\xff"], ["ü".encode()]),
    ],
)
def test_an_array_has_names_and_beginnings_of_any_bytes(
    text: str, names: list[bytes], prefixes: list[bytes]
):
    assert queues({"queues": text}, "queues") == WantedQueues(tuple(names), tuple(prefixes))


@pytest.mark.parametrize(
    "element",
    [
        *('{"prefix": ""}', '{"prefix": 1}', '{"prefix": ["a"]}', '{"prefix": {"base64": "?"}}'),
        *('{"prefix": {"prefix": "a"}}', '{"prefix": "a", "base64": "YQ=="}', '{"suffix": "a"}'),
    ],
)
def test_what_is_neither_is_refused_with_an_example(element: str):
    with pytest.raises(InvalidRequestError, match=r'such as .*{"prefix": "c, "}'):
        queues({"queues": f'["a", {element}]'}, "queues")
