"""Compares the numbers of two reports."""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

from disque_spark.audit.rules import KINDS
from disque_spark.files import Place, location
from disque_spark.report.whole import GROUPS

Numbers: TypeAlias = Mapping[str, Any]

_TOTALS = ("jobs", "delivered", "delivered_again")
_BAD = ("lost", "unclear", "overdue", "expired", "failed")  # groups of jobs
TIMES = ("wait_p50", "wait_p95", "wait_p99", "processing_p50", "processing_p95", "processing_p99")
_OF_QUEUES = ("jobs", *TIMES, "most_depth", "last_depth", "retries", "nacks")


class ComparisonError(ValueError):
    """A file to compare with is not the JSON of a report."""


class Change(NamedTuple):
    """A number, before and now; None: unknown."""

    name: str
    before: float | None
    now: float | None
    is_time: bool = False  # ms
    is_bad: bool = False  # less is better

    @property
    def difference(self) -> float | None:
        return None if self.before is None or self.now is None else self.now - self.before


def summary(numbers: Numbers) -> dict[str, Any]:
    """The numbers of a report that a later one is compared with.

    Raises:
        ComparisonError: it is not a report.
    """
    try:
        return {
            "first": int(numbers["first"]),
            "last": int(numbers["last"]),
            "version": int(numbers.get("version", 0)),
            "jobs": dict(numbers["jobs"]),
            "whole": {name: numbers.get("whole", {}).get(name) for name in GROUPS},
            "findings": {kind: int(numbers["findings"].get(kind, 0)) for kind in KINDS},
            "queues": {
                str(row["queue"]): {name: row.get(name) for name in _OF_QUEUES}
                for row in numbers["queues"]
            },
        }
    except (KeyError, TypeError, ValueError, AttributeError) as problem:
        raise ComparisonError(f"not the numbers of a report: {problem!r}") from None


def before_of(earlier: Numbers, numbers: Numbers) -> dict[str, Any] | None:
    """What to compare ``numbers`` with: the report ``earlier``, or if that is of the same version
    of the same audit, the one it was compared with.

    Raises:
        ComparisonError: ``earlier`` is not a report.
    """
    found = summary(earlier)
    same = ("version", "events", "first", "last")
    if any(earlier.get(name) != numbers[name] for name in same):
        return found
    before: dict[str, Any] | None = earlier.get("before")
    return before


def read_report(path: Place) -> Numbers:
    """Read the numbers of a report from a file.

    Raises:
        ComparisonError: it is not the JSON of a report.
        OSError: the file cannot be read.
    """
    try:
        numbers = json.loads(location(path).read_bytes())
    except ValueError as problem:
        raise ComparisonError(f"{path}: {problem}") from None
    try:
        summary(numbers)
    except ComparisonError as problem:
        raise ComparisonError(f"{path}: {problem}") from None
    assert isinstance(numbers, dict)
    return numbers


def totals(numbers: Numbers) -> list[Change]:
    """The totals of both reports, what became of the jobs, and their waiting and processing
    times."""
    before, now = numbers["before"]["jobs"], numbers["jobs"]
    was, whole = numbers["before"].get("whole", {}), numbers["whole"]
    return [
        *[Change(name, before.get(name), now.get(name)) for name in _TOTALS],
        *[
            Change(group.label, was.get(name), whole[name], is_bad=name in _BAD)
            for name, group in GROUPS.items()
            if was.get(name) or whole[name]
        ],
        *[Change(name, before.get(name), now.get(name), True, True) for name in TIMES],
    ]


def findings(numbers: Numbers) -> list[Change]:
    """The numbers of findings of each kind that occurs in either report."""
    before, now = numbers["before"]["findings"], numbers["findings"]
    changes = [Change(kind, before.get(kind, 0), now[kind], is_bad=True) for kind in KINDS]
    return [change for change in changes if change.before or change.now]


def of_queue(numbers: Numbers, row: Mapping[str, Any], name: str) -> Change | None:
    """A number of a queue; None: the earlier report does not have the queue."""
    if numbers["before"] is None:
        return None
    before = numbers["before"]["queues"].get(str(row["queue"]))
    if before is None:
        return None
    return Change(name, before.get(name), row.get(name), name in TIMES, name != "jobs")


def slowed(numbers: Numbers, most: int = 10) -> list[tuple[str, Change]]:
    """The queues and times (p99) that have grown the most, relatively; the worst first."""
    found = []
    for row in numbers["queues"]:
        for name in ("wait_p99", "processing_p99"):
            change = of_queue(numbers, row, name)
            if change and change.difference and change.difference > 0 and change.now is not None:
                found.append((change.now / max(change.before or 0, 1), str(row["queue"]), change))
    found.sort(key=lambda one: (-one[0], one[1]))
    return [(queue, change) for _, queue, change in found[:most]]
