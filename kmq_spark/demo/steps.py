"""What the demo needs to compute the delays: with Spark, or in plain Python."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from kmq_spark.demo.archive import Archive

#: The topics and the consumer group of the demo.
FLIGHTS, DELAYS, GROUP = "flights", "delays", "delays"


class Steps(Protocol):
    """The second and the third step of the demo."""

    #: What the report names as having computed them.
    name: str

    def start(self) -> None:
        """Begin to read the topic of flights."""

    def work(self, seconds: float) -> None:
        """Process flights for about so long; raises when the processing has stopped."""

    def archive(self, path: Path) -> Archive:
        """Write the topic of flights to files below `path`, and count what they hold."""

    def close(self) -> None:
        """Stop everything that was started."""
