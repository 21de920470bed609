"""The `kmq` command.

Read `command_line` for how a call is parsed and how it ends, `table` for the commands there are,
then any one command's module; `output` is what they print with.
"""

from kmq_spark.cli.command_line import main

__all__ = ["main"]
