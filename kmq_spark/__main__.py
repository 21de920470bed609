"""Runs the command as `python -m kmq_spark`."""

import sys

from kmq_spark.cli.command_line import main

if __name__ == "__main__":
    sys.exit(main())
