"""The command ``disque-pipeline compact``. It needs no Spark session."""

import argparse
import sys

from disque_spark.cli.checks import UsageError, check_compact
from disque_spark.files import location
from disque_spark.lakehouse.formats import table_of
from disque_spark.lakehouse.settings import TableError, table_failures
from disque_spark.lakehouse.table import CompactionReport, Upkeep
from disque_spark.signals import Signals, Stopped
from disque_spark.terminal import TerminalProgress
from disque_trio.process.one_line import show_traceback

OK, FAILED, USAGE, STOPPED = 0, 1, 2, 128


def run(options: argparse.Namespace) -> int:
    """Compact a table. Returns the exit status."""
    progress = TerminalProgress()
    signals = Signals()
    signals.catch()
    try:
        settings = check_compact(options)
        place = location(options.table, dict(options.conf))
        table = table_of(place, settings, dict(options.iceberg_catalog))
        upkeep = Upkeep(
            target=options.target_size,
            history=options.keep_history,
            days=options.keep_days,
            dry_run=options.dry_run,
        )
        with table_failures(options.table):
            outcome = table.keep_up(upkeep, progress)
    except Stopped as stopped:
        return _ended(progress, str(stopped), STOPPED + stopped.signal)
    except UsageError as problem:
        return _ended(progress, str(problem), USAGE)
    except (TableError, OSError, ValueError) as problem:
        show_traceback(options.debug)
        return _ended(progress, str(problem), FAILED)
    finally:
        signals.release()
    progress.end()
    _print(outcome, options.dry_run)
    return OK


def _ended(progress: TerminalProgress, text: str, status: int) -> int:
    progress.end()
    print(f"disque-pipeline: {text}", file=sys.stderr)
    return status


def _print(outcome: CompactionReport, dry_run: bool) -> None:
    would = " would be" if dry_run else ""
    print(f"{outcome.before} files{would} merged into {outcome.after}")
    for day in outcome.days:
        print(f"{day}{would} removed")
    if not dry_run:
        print(f"{outcome.removed} files removed")
    for text in outcome.waiting:
        print(text)
