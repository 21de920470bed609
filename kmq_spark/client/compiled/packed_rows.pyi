from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

def batch(
    values: object,
    keys: object,
    times: npt.NDArray[np.int64],
    packed: list[Any],
) -> tuple[pa.RecordBatch, npt.NDArray[np.int64], npt.NDArray[np.int32] | int | None] | None: ...
