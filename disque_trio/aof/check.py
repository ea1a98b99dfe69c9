"""``disque-check-aof``: checks an append-only file, truncates it, or salvages its good records.

Owns the command line, what is printed, and the order of system calls by which no byte of the file
is lost: ``--fix`` has a copy of it on the disk before it cuts, ``--salvage`` writes a new file
only. The lines and exit codes of Disque's own tool are kept; what this one adds is printed before
them.
"""

import argparse
import contextlib
import errno
import os
import shlex
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, NoReturn

from disque_trio.aof.format import AofError
from disque_trio.aof.scanner import MAX_QUEUES, Scanner, Stretch
from disque_trio.disk import sync_directory
from disque_trio.version import VERSION

_LISTED = 20  # damaged places that are listed one by one
_INTERRUPTED = 130
_COPY = 16 << 20  # bytes copied in one call, so that Ctrl-C is heard
_CANNOT_COPY_RANGE = (errno.EXDEV, errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP, errno.EBADF)

DESCRIPTION = """\
Checks an append-only file of Disque: every record, and every job in it.
"""
EPILOG = """\
exit status: 0 the file is valid, or was fixed or salvaged; 1 otherwise; 130 interrupted.
Stop the node first: what it writes meanwhile looks like damage, and --fix would cut it off.
"""


class Refused(Exception):
    """The command refused to change anything; the text says why."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``disque-check-aof``; see ``run``."""
    return run("disque-check-aof", DESCRIPTION, Scanner, arguments)


def run(
    program: str, description: str, kind: type[Scanner], arguments: Sequence[str] | None = None
) -> int:
    """Run a tool for files of one kind.

    Args:
        program: its name. description: what it is for. kind: what knows the records.
        arguments: the command line without the program's name; default: that of the process.

    Returns:
        The exit status: 0 for a valid, fixed or salvaged file, 130 when interrupted, else 1.
    """
    options = _parse(program, description, sys.argv[1:] if arguments is None else arguments)
    options.kind = kind
    path = Path(options.file)
    try:
        return _run(path, options)
    except Refused as error:
        print(error)
    except BrokenPipeError:
        # The reader of our output is gone; without this Python complains once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        print(f"Failed: {error}")
    except KeyboardInterrupt:
        return _INTERRUPTED
    return 1


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stdout)
        print(f"Invalid arguments: {message}")
        sys.exit(1)  # as Disque's tool; argparse has 2


def _parse(program: str, description: str, arguments: Sequence[str]) -> argparse.Namespace:
    parser = _Parser(
        program,
        description=description,
        epilog=EPILOG,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        "--fix",
        action="store_true",
        help="cut the file off at the first bad record, after a copy of it was made beside it",
    )
    what.add_argument(
        "--salvage",
        metavar="OUT",
        type=Path,
        help="write all good records into the new file OUT, also those behind damage",
    )
    parser.add_argument("--yes", action="store_true", help="--fix without asking")
    parser.add_argument("--version", action="version", version=f"%(prog)s {VERSION}")
    parser.add_argument("file", metavar="FILE", type=Path)
    options = parser.parse_args(arguments)
    options.program = program
    if options.yes and not options.fix:
        parser.error("--yes is for --fix")
    return options


def _run(path: Path, options: argparse.Namespace) -> int:
    out: Path | None = options.salvage
    with _open(path, write=options.fix) as file:
        before = os.fstat(file.fileno())
        if before.st_size == 0:
            raise Refused(f"Empty file: {_shown(path)}")
        kind: type[Scanner] = options.kind
        findings = _salvage(file, out, kind) if out else _look(file, kind, lambda stretch: None)
        findings.show(path, out, options.program)
        size, ok_up_to = findings.scanner.size, findings.ok_up_to
        print(f"AOF analyzed: size={size}, ok_up_to={ok_up_to}, diff={size - ok_up_to}")
        if ok_up_to == size:
            print("AOF is valid")
            return 0
        if not options.fix:
            print("AOF is not valid")
            return 0 if out is not None else 1
        print(
            f"This will shrink the AOF from {size} bytes, with {size - ok_up_to} bytes,"
            f" to {ok_up_to} bytes"
        )
        if not options.yes and not _agreed():
            raise Refused("Aborting...")
        _truncate(file, path, before, ok_up_to)
        print("Successfully truncated AOF")
        return 0


def _open(path: Path, write: bool) -> BinaryIO:
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # before it is opened: a pipe would block
            raise OSError("Not a regular file")
        return path.open("r+b" if write else "rb", buffering=0)
    except OSError as error:
        print(f"Cannot open file: {_shown(path)}")
        raise Refused(f"{error.strerror or error}") from error


def _shown(path: Path) -> str:
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def _agreed() -> bool:
    """Ask on the terminal whether to go on."""
    print("Continue? [y/N]: ", end="", flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


# ---- what is found -------------------------------------------------------------------------------


class Findings:
    """The result of checking a file.

    Attributes:
        damage: the first of the damaged stretches.
        places: how many there are.
        bad: bytes in all of them.
        first: what is wrong with the first, None: the file is valid.
        before: jobs, deletes, pauses, keys before the first.
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

    def show(self, path: Path, out: Path | None, program: str) -> None:
        """Print everything but the lines that Disque's tool prints as well."""
        scanner = self.scanner
        queues = f"{scanner.queues}{' or more' if scanner.queues == MAX_QUEUES else ''}"
        print(
            f"Good records: {scanner.taken}={scanner.jobs}, queues={queues}, "
            f"{scanner.ended}={scanner.deletes}{_more(scanner.pauses, scanner.keys)}"
        )
        if self.first is not None:
            self._show_damage(self.first, path, out, program)
        if out is not None:
            print(
                f"Salvaged {sum(self._counts)} records, {scanner.size - self.bad} bytes,"
                f" into {_shown(out)}; skipped {self.bad} bytes in {self.places} places"
            )

    def _show_damage(self, first: AofError, path: Path, out: Path | None, program: str) -> None:
        size = self.scanner.size
        print(f"First bad record: offset={first.offset} (0x{first.offset:x}): {first.reason}")
        for start, end, error in self.damage:
            reason = error.reason if error is not None else ""
            print(f"Damaged: {start}..{end} ({end - start} bytes): {reason}")
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
        quoted = shlex.quote(_shown(path))
        if out is None and any(behind):
            print(f"To keep them: {program} --salvage NEWFILE {quoted}")
        elif out is None:
            print(f"To repair it: {program} --fix {quoted}")


def _more(pauses: int, keys: int) -> str:
    """Most files have none of these."""
    return (f", pauses={pauses}" if pauses else "") + (f", keys={keys}" if keys else "")


def _look(file: BinaryIO, kind: type[Scanner], each: Callable[[Stretch], object]) -> Findings:
    """Go through the file and call ``each`` with its stretches."""
    with _progress(os.fstat(file.fileno()).st_size) as progress:
        scanner = kind(file, progress)
        findings = Findings(scanner)
        for stretch in scanner.stretches():
            findings.add(stretch)
            each(stretch)
    return findings


@contextlib.contextmanager
def _progress(size: int) -> Iterator[Callable[[int], object]]:
    """Shows on a terminal how far the check is, if it takes more than a second."""
    start = shown = time.monotonic()

    def show(at: int) -> None:
        nonlocal shown
        now = time.monotonic()
        if now - shown < (1 if shown == start else 0.2):
            return
        shown = now
        speed = max(at, 1) / (now - start)
        line = f"{at * 100 // size:3}%  {speed / 1e6:.0f} MB/s  ETA {(size - at) / speed:.0f} s"
        print(f"\r{line}\x1b[K", end="", file=sys.stderr, flush=True)

    if not sys.stderr.isatty():
        yield lambda at: None
        return
    try:
        yield show
    finally:
        if shown != start:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


# ---- what is changed -----------------------------------------------------------------------------


def _salvage(file: BinaryIO, out: Path, kind: type[Scanner]) -> Findings:
    """Write the good records into ``out``, which is there whole or not at all.

    Raises:
        Refused: it exists, or nothing is good.
        OSError: it could not be written.
    """
    _refuse_existing(out)
    descriptor, temporary = tempfile.mkstemp(".tmp", f".{out.name}.", out.parent)
    try:
        with os.fdopen(descriptor, "wb", buffering=0) as target:

            def keep(stretch: Stretch) -> None:
                if stretch.error is None:
                    _copy(file, target, stretch.start, stretch.end)

            findings = _look(file, kind, keep)
            if not target.tell():
                raise Refused(f"No good record: {_shown(out)} was not written")
            _keep_owner_and_mode(file, target)
            os.fsync(target.fileno())
        _refuse_existing(out)
        Path(temporary).rename(out)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(temporary).unlink()
        raise
    sync_directory(out.parent)
    return findings


def _refuse_existing(out: Path) -> None:
    if os.path.lexists(out):
        raise Refused(f"File exists: {_shown(out)}")


def _truncate(file: BinaryIO, path: Path, before: os.stat_result, length: int) -> None:
    """Cut the file, but first copy it.

    Raises:
        Refused: it could not be copied, or somebody has written to it; it is as it was.
        OSError: it could not be cut.
    """
    backup = path.with_name(path.name + time.strftime(".bak-%Y%m%d-%H%M%S"))
    try:
        _back_up(file, backup, before.st_size)
    except OSError as error:
        raise Refused(f"Cannot copy to {_shown(backup)}: {error}\nThe AOF is as it was") from error
    now = os.fstat(file.fileno())
    if (now.st_size, now.st_mtime_ns) != (before.st_size, before.st_mtime_ns):
        backup.unlink()
        raise Refused("The AOF was written to while it was checked: stop the node first")
    print(f"Copied the whole AOF to {_shown(backup)}")
    os.ftruncate(file.fileno(), length)
    os.fsync(file.fileno())
    sync_directory(path.parent)


def _back_up(file: BinaryIO, backup: Path, size: int) -> None:
    """Copy the file to ``backup``, which must not exist. Raises OSError."""
    disk = os.statvfs(backup.parent)
    if disk.f_bavail * disk.f_frsize < size:
        raise OSError(f"No room for {size} bytes")
    with backup.open("xb", buffering=0) as target:
        try:
            _keep_owner_and_mode(file, target)
            _copy(file, target, 0, size)
            os.fsync(target.fileno())
        except BaseException:
            backup.unlink()
            raise
    sync_directory(backup.parent)


def _keep_owner_and_mode(file: BinaryIO, target: BinaryIO) -> None:
    """As root, make a file that the node may open."""
    old = os.fstat(file.fileno())
    os.fchmod(target.fileno(), stat.S_IMODE(old.st_mode))
    with contextlib.suppress(PermissionError):
        os.fchown(target.fileno(), old.st_uid, old.st_gid)


def _copy(file: BinaryIO, target: BinaryIO, start: int, end: int) -> None:
    """Append bytes of one file to another, within the kernel."""
    while start < end:
        count = min(_COPY, end - start)
        try:
            copied = os.copy_file_range(file.fileno(), target.fileno(), count, start)
        except OSError as error:
            if error.errno not in _CANNOT_COPY_RANGE:
                raise
            copied = os.sendfile(target.fileno(), file.fileno(), start, count)
        if not copied:
            raise OSError("The file became shorter while it was read")
        start += copied


if __name__ == "__main__":
    sys.exit(main())
