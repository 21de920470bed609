"""What the demo says of Spark's errors: a line, and a way out where there is one."""

from __future__ import annotations

from kmq_spark.demo.with_spark import in_one_line


def test_an_error_is_told_without_the_page_about_the_query():
    told = in_one_line("[STREAM_FAILED] it failed\nbecause of this\nat java.lang\n")
    assert told == "[STREAM_FAILED] it failed because of this"
    assert in_one_line("it failed\n=== Streaming Query ===\nIdentifier: x") == "it failed"


def test_who_has_a_busy_machine_is_told_so():
    told = in_one_line("Python worker failed to connect back.\n=== Streaming Query ===\n...")
    assert told.startswith("Python worker failed to connect back. Spark waits 10 s")
