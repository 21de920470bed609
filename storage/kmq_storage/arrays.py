"""Names of numpy's arrays for annotations, without the slow import of `numpy.typing`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

#: Offsets, rows, counts and the like.
Numbers: TypeAlias = "npt.NDArray[np.int64]"
#: One flag per row or element.
Mask: TypeAlias = "npt.NDArray[np.bool_]"
#: Numbers of any kind, or rows of several.
Array: TypeAlias = "npt.NDArray[Any]"
