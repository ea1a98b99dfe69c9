"""What a process of a server knows of all of them, and what INFO tells of that.

Each process tells the others its figures once a second, so that any of them can tell those of all,
and the sums, without asking.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from disque_trio.health.lines import AlarmLine, format_line, read_line
from disque_trio.respserver.commands.info import Fields

# What one process can ask another one to do (see ``siblings``).
RESTART: Final = b"RESTART"
DUMP: Final = b"DUMP"
APPLY: Final = b"APPLY"

_MOST_ALARMS: Final = 50  # that are told ...
_LONGEST_ALARM: Final = 1_000  # ... and bytes of each
PATIENCE: Final = 5.0  # s without a report until a process that is connected counts as silent

UP: Final = "up"
LOADING: Final = "loading"
SILENT: Final = "silent"
DOWN: Final = "down"

_NOT_ADDED: Final = ("process_id", "uptime_in_seconds")


class SiblingReport:
    """What a process tells of itself.

    Attributes:
        id: of its node. address: by which clients and nodes reach it, and no other process.
        figures: its counts, by their names in INFO.
        alarms: what is wrong with it.
    """

    def __init__(
        self, id: bytes, address: str, figures: Mapping[str, int], alarms: Sequence[AlarmLine] = ()
    ) -> None:
        self.id = id
        self.address = address
        self.figures = figures
        self.alarms = alarms

    def words(self) -> list[bytes]:
        """The report as words of a message, without the alarms."""
        figures = [f"{name}={value}".encode() for name, value in self.figures.items()]
        return [self.id, self.address.encode(), *figures]

    def alarm_words(self) -> list[bytes]:
        """The worst alarms as words of a message, which must not be too long."""
        worst = self.alarms[:_MOST_ALARMS]
        return [format_line(line).encode()[:_LONGEST_ALARM] for line in worst]


def read_report(words: Sequence[bytes]) -> SiblingReport:
    """Inverse of ``SiblingReport.words``. Raises ``ValueError``."""
    id, address, *pairs = words
    figures = {}
    for pair in pairs:
        name, _, value = pair.decode().partition("=")
        figures[name] = int(value)
    return SiblingReport(id, address.decode(), figures)


class _Seen:
    """The last report of another process. ``here``: it is connected."""

    def __init__(self, report: SiblingReport, at: float) -> None:
        self.report = report
        self.at = at
        self.here = True

    def state(self, now: float) -> str:
        """What it is at ``now`` (s), as far as is known."""
        if not self.here:
            return DOWN
        return SILENT if now - self.at > PATIENCE else UP


class SiblingTable:
    """All processes of a server.

    Args:
        number: of this one. count: how many there are.
    """

    def __init__(self, number: int, count: int) -> None:
        self.number = number
        self.count = count
        self._seen: dict[int, _Seen] = {}
        self._alarms: dict[int, list[AlarmLine]] = {}

    def heard(self, number: int, report: SiblingReport, now: float) -> None:
        """Take the report of another process, at ``now`` (s)."""
        self._seen[number] = _Seen(report, now)

    def gone(self, number: int) -> None:
        """Note that another process is not connected any more."""
        seen = self._seen.get(number)
        if seen is not None:
            seen.here = False

    def heard_alarms(self, number: int, words: Sequence[bytes]) -> None:
        """Take what is wrong with another process, as lines of INFO. Raises ``ValueError``."""
        self._alarms[number] = [
            read_line(word.decode("utf-8", "replace"))._replace(process=number) for word in words
        ]

    def alarms(self) -> list[AlarmLine]:
        """What is wrong with the other processes that are connected."""
        return [
            line
            for number, seen in sorted(self._seen.items())
            if seen.here
            for line in self._alarms.get(number, [])
        ]

    def silent(self, now: float) -> list[tuple[int, str]]:
        """The other processes that do not answer at ``now`` (s), and what they are."""
        found = []
        for number in range(self.count):
            seen = self._seen.get(number)
            state = DOWN if seen is None else seen.state(now)
            if number != self.number and state != UP:
                found.append((number, state))
        return found

    def fields(self, own: SiblingReport, loading: bool, now: float) -> Fields:
        """The section of INFO. ``own``: the report of this process, which may be ``loading``."""
        lines: Fields = {}
        sums: dict[str, int] = {}
        up = 0
        for number in range(self.count):
            seen = self._seen.get(number)
            if number == self.number:
                state, report = LOADING if loading else UP, own
            elif seen is None:
                lines[f"process{number}"] = f"state={DOWN},id=,address="
                continue
            else:
                report = seen.report
                state = seen.state(now)
            line = f"state={state},id={report.id.decode()},address={report.address}"
            if state != DOWN:
                up += state == UP
                line += "".join(f",{name}={value}" for name, value in report.figures.items())
                for name, value in report.figures.items():
                    if name not in _NOT_ADDED:
                        sums[name] = sums.get(name, 0) + value
            lines[f"process{number}"] = line
        about: Fields = {"processes": self.count, "process": self.number, "processes_up": up}
        return about | lines | {f"processes_{name}": value for name, value in sums.items()}
