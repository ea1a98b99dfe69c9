"""The findings of ``disque-check-aof`` in a file, and its report."""

import os
import shlex
from itertools import islice
from pathlib import Path

from disque_trio.aof.format import AofError
from disque_trio.aof.scanner import MAX_QUEUES, Scanner, Stretch

_LISTED = 20  # damaged places to list one by one
_RECORDS = 100  # records to list of each


class Findings:
    """The result of checking a file.

    Attributes:
        damage: the first few damaged stretches.
        places: how many there are.
        bad: bytes in all of them.
        first: what is wrong with the first one; None: the file is valid.
        before: numbers of jobs, deletes, pauses and keys before the first one.
    """

    def __init__(self, scanner: Scanner) -> None:
        self.scanner = scanner
        self.damage: list[Stretch] = []
        self.places = 0
        self.bad = 0
        self.first: AofError | None = None
        self.before = (0, 0, 0, 0)

    @property
    def ok_up_to(self) -> int:
        """The offset of the first bad record, or of the end of the file."""
        return self.scanner.size if self.first is None else self.first.offset

    @property
    def _counts(self) -> tuple[int, int, int, int]:
        scanner = self.scanner
        return scanner.jobs, scanner.deletes, scanner.pauses, scanner.keys

    def add(self, stretch: Stretch) -> None:
        if stretch.error is None:
            return
        if self.first is None:
            self.first = stretch.error
            self.before = self._counts
        self.places += 1
        self.bad += stretch.end - stretch.start
        if len(self.damage) < _LISTED:
            self.damage.append(stretch)

    def show(self, path: Path, out: Path | None, program: str, fixing: bool) -> None:
        """Print everything except the lines that Disque's tool prints too. Suggest no ``--fix`` if
        ``fixing``."""
        scanner = self.scanner
        queues = f"{scanner.queues}{' or more' if scanner.queues == MAX_QUEUES else ''}"
        print(
            f"Good records: {scanner.taken}={scanner.jobs}, queues={queues}, "
            f"{scanner.ended}={scanner.deletes}{_more(scanner.pauses, scanner.keys)}"
            f"{f', trailers={scanner.trailers}' if scanner.trailers else ''}"
        )
        if self.first is not None:
            self._show_damage(self.first, path, out, program, fixing)
        checked = scanner.file
        if checked.covered < checked.size:
            print(f"Checksums: for {checked.covered} of {checked.size} bytes")
        if checked.doubtful >= 0:
            print(
                f"Checksums: not those of this file from offset {checked.doubtful} on: it is "
                "damaged up to its end, or was replaced"
            )
        for offset, (record, mark) in scanner.repaired.items():
            print(f"Flipped bit: offset={mark.start}, bit={mark.bit}: {record} at {offset}")
        if out is not None:
            print(
                f"Salvaged {sum(self._counts)} records, {scanner.size - self.bad} bytes,"
                f" into {shown_path(out)}; skipped {self.bad} bytes in {self.places} places"
            )

    def _show_damage(
        self, first: AofError, path: Path, out: Path | None, program: str, fixing: bool
    ) -> None:
        size = self.scanner.size
        print(f"First bad record: offset={first.offset} (0x{first.offset:x}): {first.reason}")
        for start, end, error in self.damage:
            reason = error.reason if error is not None else ""
            print(f"Damaged: {start}..{end} ({end - start} bytes): {reason}")
            if self.scanner.file.found(start, end) is not None:
                for record in islice(self.scanner.file.records(start, start, end), 1, _RECORDS):
                    print(f"Damaged: {record}")
        if self.places > _LISTED:
            print(f"Damaged: {self.places - _LISTED} more places")
        jobs, deletes, pauses, keys = behind = [
            now - before for now, before in zip(self._counts, self.before, strict=True)
        ]
        lost = f"--fix cuts off {size - first.offset} bytes"
        if first.truncated:
            print(f"Truncated tail, as a crash leaves it. {lost}, no good record among them.")
        elif not any(behind):
            print(f"Damage up to the end of the file. {lost}, no good record among them.")
        else:
            print(
                f"Damage in the middle. {lost}, among them good records:"
                f" {self.scanner.taken}={jobs}, {self.scanner.ended}={deletes}"
                f"{_more(pauses, keys)}."
            )
        quoted = shlex.quote(shown_path(path))
        if out is None and any(behind):
            print(f"To keep them: {program} --salvage NEWFILE {quoted}")
        elif out is None and not fixing:
            print(f"To repair it: {program} --fix {quoted}")


def _more(pauses: int, keys: int) -> str:
    """The counts that are 0 for most files."""
    return (f", pauses={pauses}" if pauses else "") + (f", keys={keys}" if keys else "")


def shown_path(path: Path) -> str:
    """``path`` for printing, whatever bytes it contains."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")
