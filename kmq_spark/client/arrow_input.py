"""Arrow data as users have it: a batch, a table or a reader."""

from __future__ import annotations

import pyarrow as pa

from kmq_spark.client.arrow_extras import check_headers, check_properties
from kmq_spark.client.encoding import check_arrow_columns, check_partitions, in_stored_types
from kmq_spark.errors import InvalidRequestError


def batches_of(data: object) -> list[pa.RecordBatch]:
    """The non-empty record batches of a RecordBatch, Table or RecordBatchReader.

    They have the stored types. InvalidRequestError for anything that a plain topic doesn't take.
    """
    if isinstance(data, pa.RecordBatch):
        check_arrow_columns(data.schema)
        batches = [data]
    elif isinstance(data, pa.Table):
        check_arrow_columns(data.schema)
        batches = data.combine_chunks().to_batches()
    elif isinstance(data, pa.RecordBatchReader):
        check_arrow_columns(data.schema)
        batches = list(data)
    else:
        raise InvalidRequestError(
            "data must be a pyarrow RecordBatch, Table or RecordBatchReader, not "
            f"{type(data).__name__}"
        )
    return [_checked(in_stored_types(batch)) for batch in batches if batch.num_rows]


def _checked(batch: pa.RecordBatch) -> pa.RecordBatch:
    if "headers" in batch.schema.names:
        check_headers(batch.column("headers"))
    if "properties" in batch.schema.names:
        check_properties(batch.column("properties"))
    if "partition" in batch.schema.names:
        check_partitions(batch.column("partition"))
    return batch
