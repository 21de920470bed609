"""A server that keeps its objects on disk, where answers get lost or credentials don't reach.

Apart from the faults of the servers in memory: those wait for nothing that is built meanwhile.
"""

from __future__ import annotations

import pytest

from kmq_storage.errors import UnavailableError
from kmq_storage.objects.open import open_files
from tests.contract.racing import HANG_SECONDS, doubtful, handles_by, race
from tests.support.fault_proxy import FaultProxy
from tests.support.s3 import S3Server
from tests.support.storage import open_log


def test_racing_writers_lose_and_double_nothing_there_either(versitygw: S3Server):
    with FaultProxy(versitygw, hang_seconds=HANG_SECONDS) as proxy:
        race(proxy, handles_by(proxy), doubtful())


def test_credentials_that_do_not_reach_are_a_clear_error(versitygw: S3Server):
    options = {**versitygw.options(), "secret_access_key": "wrong-wrong-wrong"}
    files = open_files(versitygw.new_url(), storage_options=options)
    with pytest.raises(UnavailableError, match="permission"):
        open_log(files)
