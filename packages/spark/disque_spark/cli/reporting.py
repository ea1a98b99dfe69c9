"""The command ``disque-pipeline report``. It needs no Spark session."""

import argparse
from collections.abc import Mapping

from disque_spark.audit.store import StoreError
from disque_spark.cli import sessionless
from disque_spark.cli.checks import check_report
from disque_spark.files import Location, location
from disque_spark.report import ComparisonError, Json, make_report, read_report, write_report
from disque_spark.terminal import TerminalProgress


def run(options: argparse.Namespace) -> int:
    """Write a report. Returns the exit status."""
    return sessionless.run(options, _report, StoreError)


def _report(options: argparse.Namespace, progress: TerminalProgress) -> None:
    check_report(options)
    if options.explain:
        print("report needs no Spark, so it has no plan")
        return
    numbers, places = _write(options, progress)
    progress.end()
    print(numbers["headline"])
    for place in places:
        print(place)


def _write(
    options: argparse.Namespace, progress: TerminalProgress
) -> tuple[Mapping[str, Json], list[Location]]:
    """Write the page and the numbers. Returns the numbers, and where both are."""
    settings = dict(options.conf)
    html, file, before = (
        None if path is None else location(path, settings)
        for path in (options.html, options.json, options.before)
    )
    if html is None and file is None:
        audit = location(options.audit, settings)
        html, file = audit / "report.html", audit / "report.json"
    numbers = make_report(options.audit, _before(before, file), progress, settings)
    write_report(numbers, html, file)
    return numbers, [place for place in (html, file) if place is not None]


def _before(chosen: Location | None, replaced: Location | None) -> Mapping[str, Json] | None:
    """The report to compare with: the chosen one, or else the one that will be replaced."""
    if chosen is not None:
        return read_report(chosen)
    if replaced is None or not replaced.exists():
        return None
    try:
        return read_report(replaced)
    except ComparisonError:
        return None  # written by another program
