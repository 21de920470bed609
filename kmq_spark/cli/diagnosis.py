"""What one check of `kmq doctor` found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

#: "fail": kmq can't run; "warn": a part of it can't, or runs slowly.
Status = Literal["ok", "warn", "fail"]


@dataclass(frozen=True, slots=True)
class Check:
    """The result of a check, and what to do about it when it is not ok."""

    name: str
    status: Status
    found: str
    advice: str = ""
