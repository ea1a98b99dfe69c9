"""``disque-pipeline``: parses the arguments, and runs the command if Spark is installed."""

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from disque_spark.cli.arguments import parser
from disque_spark.health import check_health
from disque_spark.missing import advice
from disque_trio.process.health import HealthError
from disque_trio.process.one_line import one_line

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OK, FAILED = 0, 1


@one_line("disque-pipeline")
def main(
    arguments: Sequence[str] | None = None,
    spark_of: "Callable[[argparse.Namespace], SparkSession] | None" = None,
) -> int:
    """Run a command. Returns the exit status.

    Args:
        spark_of: returns the session to use; None: use a new one, and stop it at the end.
    """
    options = parser().parse_args(arguments)
    if options.command == "health":
        return _health(options)
    try:
        if options.command == "compact":
            from disque_spark.cli import upkeep

            return upkeep.run(options)
        if options.command == "report":
            from disque_spark.cli import reporting

            return reporting.run(options)
        if options.command == "job":
            from disque_spark.cli import about_job

            return about_job.run(options)
        from disque_spark.cli import commands

        return commands.run(options, spark_of)
    except ModuleNotFoundError as missing:
        text = advice(missing, options.command)
        if text is None:
            raise
        print(f"disque-pipeline: {text}", file=sys.stderr)
        return FAILED


def _health(options: argparse.Namespace) -> int:
    try:
        print(check_health(options.file, options.max_age))
    except HealthError as problem:
        print(f"disque-pipeline: {problem}", file=sys.stderr)
        return FAILED
    return OK


if __name__ == "__main__":
    sys.exit(main())
