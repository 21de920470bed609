"""The options of a write: parsed once, on the driver, before anything is opened."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kmq_spark.datasource import option_values as values
from kmq_spark.datasource.known_options import SINK_OPTIONS, SOURCE_OPTIONS, refuse_unknown

#: What Spark itself adds to the options of a streaming sink.
_SPARKS_OWN = ("checkpointlocation", "queryname")


@dataclass(frozen=True, kw_only=True)
class SinkOptions:
    """What a write was asked for."""

    url: str
    topic: str | None


def parse_sink_options(options: Mapping[str, str]) -> SinkOptions:
    """The options of a write, or InvalidRequestError that names option, value and expectation."""
    given = {name.lower(): value for name, value in options.items()}
    for option in _SPARKS_OWN:
        given.pop(option, None)
    refuse_unknown(given, SINK_OPTIONS, SOURCE_OPTIONS, "write")
    values.boolean(given, "includeHeaders", default=False)
    return SinkOptions(url=values.store_url(given), topic=values.name(given, "topic", "topic"))
