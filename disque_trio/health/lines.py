"""Alarms as fields of INFO, and back.

A field ``alarm0:severity=critical,kind=peer-lost,since=1700000000,about=10.0.0.2:7711,cause=...``
for each, the worst first; of a server with several processes with ``process=1,`` before that. The
cause is the rest of the line, and may have commas.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from disque_trio.health.keeper import Alarm, rank
from disque_trio.health.table import CRITICAL, SEVERITIES

SECTION: Final = "alarms"
_UNSAFE: Final = dict.fromkeys((*range(32), 127), " ")


class AlarmLine(NamedTuple):
    """An alarm as INFO tells it.

    Attributes:
        kind, severity, about, cause: words of the line; ``kind`` may be of another release.
        since: in s since the epoch.
        process: of the node; -1: it has only one.
    """

    kind: str
    severity: str
    since: int
    about: str
    cause: str
    process: int = -1


def line_of(alarm: Alarm, process: int = -1) -> AlarmLine:
    """``alarm`` for INFO."""
    return AlarmLine(
        alarm.kind, alarm.severity, alarm.since // 1000, alarm.about, alarm.cause, process
    )


def format_line(line: AlarmLine) -> str:
    """``line`` as the value of a field."""
    about = line.about.translate(_UNSAFE).replace(",", "_")
    text = f"severity={line.severity},kind={line.kind},since={line.since},about={about}"
    if line.process >= 0:
        text = f"process={line.process},{text}"
    return f"{text},cause={line.cause.translate(_UNSAFE)}"


def read_line(text: str) -> AlarmLine:
    """Inverse of ``format_line``; words that it does not know are ignored. Raises
    ``ValueError``."""
    before, found, cause = text.partition(",cause=")
    if not found:
        raise ValueError("an alarm has a cause")
    words: dict[str, str] = {}
    for word in before.split(","):
        name, _, value = word.partition("=")
        words[name] = value
    if not words.get("kind") or words.get("severity") not in SEVERITIES:
        raise ValueError("an alarm has a kind and a severity")
    return AlarmLine(
        words["kind"],
        words["severity"],
        int(words.get("since", "0")),
        words.get("about", ""),
        cause,
        int(words.get("process", "-1")),
    )


def fields_of(lines: Sequence[AlarmLine]) -> "dict[str, str | int | float]":
    """The section of INFO with ``lines``, in this order."""
    critical = len([line for line in lines if line.severity == CRITICAL])
    fields: dict[str, str | int | float] = {
        "alarms": len(lines),
        "alarms_critical": critical,
        "alarms_warning": len(lines) - critical,
    }
    for number, line in enumerate(lines):
        fields[f"alarm{number}"] = format_line(line)
    return fields


def lines_in(info: Mapping[str, str]) -> list[AlarmLine]:
    """The alarms in the fields of INFO; lines of another form are left out."""
    found = []
    for name, value in info.items():
        if name.startswith("alarm") and name[len("alarm") :].isdecimal():
            try:
                found.append(read_line(value))
            except ValueError:
                continue
    return found


def own_lines(info: Mapping[str, str]) -> list[AlarmLine]:
    """Those of the process that told ``info``, without those of the others of its server."""
    own = info.get("process", "-1")
    return [line for line in lines_in(info) if str(line.process) in ("-1", own)]


def in_order(lines: Iterable[AlarmLine]) -> list[AlarmLine]:
    """``lines``, the worst first, then the oldest."""
    return sorted(
        lines, key=lambda line: (SEVERITIES.index(line.severity), line.since, line.process)
    )


def lines_of(alarms: Iterable[Alarm], process: int = -1) -> list[AlarmLine]:
    """The lines of ``alarms``."""
    return [line_of(alarm, process) for alarm in sorted(alarms, key=rank)]
