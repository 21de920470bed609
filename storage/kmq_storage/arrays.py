"""What numpy's arrays are called in annotations; nobody waits for `numpy.typing`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

#: Offsets, rows, places, counts and the like.
Numbers: TypeAlias = "npt.NDArray[np.int64]"
#: A flag for each of something.
Mask: TypeAlias = "npt.NDArray[np.bool_]"
#: Numbers of any kind, or rows of several.
Array: TypeAlias = "npt.NDArray[Any]"
