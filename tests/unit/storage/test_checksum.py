"""The checksum is CRC-32C, whichever library counts it: the vectors of RFC 3720, B.4."""

from __future__ import annotations

import pytest

from kmq_storage.format.checksum import checksum, checksum_of

VECTORS = [
    (bytes(32), 0x8A9136AA),
    (b"\xff" * 32, 0x62A8AB43),
    (bytes(range(32)), 0x46DD794E),
    (bytes(range(31, -1, -1)), 0x113FDB5C),
    (b"123456789", 0xE3069283),
]


@pytest.mark.parametrize(("data", "expected"), VECTORS)
def test_the_checksum_is_that_of_the_standard(data: bytes, expected: int):
    assert checksum(data) == expected


@pytest.mark.parametrize("cut", [0, 1, 5, 9])
def test_a_checksum_goes_on_from_a_seed(cut: int):
    data, expected = VECTORS[-1]
    assert checksum(data[cut:], checksum(data[:cut])) == expected
    assert checksum_of([data[:cut], data[cut:]]) == expected
