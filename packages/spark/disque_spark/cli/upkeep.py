"""The command ``disque-pipeline compact``. It needs no Spark session."""

import argparse

from disque_spark.cli import sessionless
from disque_spark.cli.checks import check_compact
from disque_spark.files import location
from disque_spark.lakehouse.formats import table_of
from disque_spark.lakehouse.settings import TableError, table_failures
from disque_spark.lakehouse.table import CompactionReport, Upkeep
from disque_spark.terminal import TerminalProgress


def run(options: argparse.Namespace) -> int:
    """Compact a table. Returns the exit status."""
    return sessionless.run(options, _compact, TableError)


def _compact(options: argparse.Namespace, progress: TerminalProgress) -> None:
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
    progress.end()
    _print(outcome, options.dry_run)


def _print(outcome: CompactionReport, dry_run: bool) -> None:
    would = " would be" if dry_run else ""
    print(f"{outcome.before} files{would} merged into {outcome.after}")
    for day in outcome.days:
        print(f"{day}{would} removed")
    if not dry_run:
        print(f"{outcome.removed} files removed")
    for text in outcome.waiting:
        print(text)
