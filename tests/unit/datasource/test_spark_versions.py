"""Finds streaming reads on a Spark that could lose records, and imports that older ones lack.

The real thing is in tests/spark/test_spark_versions.py.
"""

from __future__ import annotations

import subprocess
import sys

import pyspark
import pytest

from kmq_spark.datasource.spark_versions import check_streaming_read
from kmq_storage.errors import IllegalStateError

#: As the API of Spark 4.0: what came later is taken away before kmq is imported.
OF_4_0 = """
import sys
import pyspark
from pyspark.sql import datasource
from pyspark.sql.pandas import types

pyspark.__version__ = "4.0.1"
del datasource.DataSourceStreamArrowWriter
sys.modules["pyspark.sql.streaming.datasource"] = None
to_arrow_schema = types.to_arrow_schema
types.to_arrow_schema = lambda schema: to_arrow_schema(schema, timezone="UTC")

from kmq_spark.datasource import KmqDataSource
from kmq_spark.datasource.writer import KmqBatchWriter, KmqStreamWriter

for writer in KmqBatchWriter, KmqStreamWriter:
    assert issubclass(writer, datasource.DataSourceArrowWriter)  # what 4.0 looks for
assert issubclass(KmqStreamWriter, datasource.DataSourceStreamWriter)
try:
    KmqDataSource({}).streamReader(None).latestOffset()
except Exception as error:
    print(error)
"""


@pytest.mark.parametrize("version", ["4.0.0", "4.0.5", "4.1.4", "4.1.0.dev1"])
def test_a_streaming_read_is_refused_where_it_could_lose_records(
    version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pyspark, "__version__", version)
    with pytest.raises(
        IllegalStateError, match=rf"Spark {version} can't read a stream .* 4.2 or l"
    ):
        check_streaming_read()


@pytest.mark.parametrize("version", ["4.2.0", "4.2.0.dev4", "4.3.0", "4.10.1", "5.0.0"])
def test_a_streaming_read_is_welcome_on_later_sparks(
    version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pyspark, "__version__", version)
    check_streaming_read()


def test_the_data_source_needs_nothing_that_spark_4_0_lacks() -> None:
    done = subprocess.run(
        [sys.executable, "-c", OF_4_0], capture_output=True, text=True, check=False
    )
    assert "Spark 4.0.1 can't read a stream from kmq" in done.stdout, done.stderr
