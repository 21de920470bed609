"""Finds messages with a `ScheduleExpression` that come too early, twice, or never."""

from __future__ import annotations

import math
from datetime import UTC, datetime

import pytest

from kmq_spark import openmessaging as oms
from kmq_spark.errors import InvalidRequestError
from kmq_spark.openmessaging.message import delivery_of
from tests.unit.openmessaging.received import attached, bodies

EARLY = "30 6 * * MON-FRI"


def _ms(*day_and_time: int) -> float:
    return datetime(2026, 1, *day_and_time, tzinfo=UTC).timestamp() * 1000


#: A Friday, an hour before the schedule's time.
BORN = _ms(2, 5, 30)


@pytest.mark.parametrize(
    ("headers", "window"),
    [
        ({}, (_ms(2, 6, 30), math.inf)),
        ({"BornTimestamp": _ms(2, 6, 30)}, (_ms(2, 6, 30), math.inf)),
        ({"BornTimestamp": _ms(2, 6, 30) + 1}, (_ms(5, 6, 30), math.inf)),
        ({"StartTime": _ms(3, 0)}, (_ms(5, 6, 30), math.inf)),
        ({"StartTime": _ms(1, 0)}, (_ms(2, 6, 30), math.inf)),
        ({"StopTime": _ms(9, 0)}, (_ms(2, 6, 30), _ms(9, 0))),
        ({"StopTime": _ms(2, 6)}, (_ms(2, 6, 30), _ms(2, 6))),
        ({"Timeout": 7_200_000}, (_ms(2, 6, 30), _ms(2, 7, 30))),
        ({"ScheduleExpression": "*/20 * * * * *"}, (BORN, math.inf)),
        ({"ScheduleExpression": "whenever"}, (-math.inf, math.inf)),
        ({"ScheduleExpression": 5, "StartTime": 7}, (7, math.inf)),
        ({"BornTimestamp": 1e300}, (-math.inf, math.inf)),
    ],
)
def test_the_first_time_of_a_schedule_behind_birth_and_start_is_a_messages_time(
    headers: dict[str, int | float | str], window: tuple[float, float]
):
    found = delivery_of({"BornTimestamp": BORN, "ScheduleExpression": EARLY, **headers})
    assert found == (*window, 4)


def test_a_scheduled_message_is_handed_out_once_and_not_before_its_time(
    settings: oms.KeyValue, producer: oms.Producer, monkeypatch: pytest.MonkeyPatch
):
    message = producer.create_bytes_message_to_topic("t", b"scheduled")
    message.put_headers("BornTimestamp", int(BORN)).put_headers("ScheduleExpression", EARLY)
    producer.send(message)
    producer.send(producer.create_bytes_message_to_topic("t", b"at once"))
    producer.flush()
    consumer = attached(settings, "q", ["t"])
    monkeypatch.setattr(consumer, "_now", lambda: _ms(2, 6, 29))
    assert bodies(consumer) == [b"at once"]
    monkeypatch.setattr(consumer, "_now", lambda: _ms(2, 6, 30))
    assert bodies(consumer) == [b"scheduled"]
    consumer.shutdown()
    assert bodies(attached(settings, "q", ["t"])) == []


@pytest.mark.parametrize("expression", ["whenever", "* * * *", "0 0 31 2 *", "0 0 12 * * ?", 5])
def test_what_is_no_schedule_is_refused_before_anything_is_stored(
    settings: oms.KeyValue, producer: oms.Producer, expression: int | str
):
    message = producer.create_bytes_message_to_topic("t", b"x")
    message.put_headers("ScheduleExpression", expression)
    with pytest.raises(InvalidRequestError, match="ScheduleExpression must be a cron expression"):
        producer.send(message)
    producer.flush()
    assert bodies(attached(settings, "q", ["t"])) == []
