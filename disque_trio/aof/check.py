"""``disque-check-aof``: checks an append-only file, truncates it, or salvages its good records.

Owns the command line, the output, and the order of system calls by which no byte of the file is
lost: ``--fix`` first saves a copy of it to disk, and ``--salvage`` only writes a new file. The
lines and exit codes of Disque's own tool are kept; what this one adds is printed before them.
"""

import argparse
import contextlib
import errno
import os
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, NoReturn

from disque_trio import humanize
from disque_trio.aof.checksums import Mark, Sums, read_sums
from disque_trio.aof.findings import Findings, shown_path
from disque_trio.aof.scanner import Scanner, Stretch
from disque_trio.aof.trailers import trailer_line
from disque_trio.disk import sync_directory
from disque_trio.process.one_line import add_debug_option, one_line
from disque_trio.process.options import Parser, add_version_option
from disque_trio.protocol.serialjob import SerialJob
from disque_trio.protocol.trailer import Trailer

_INTERRUPTED = 130
_COPY = 16 << 20  # bytes copied in one call, so that Ctrl-C is heard
_CANNOT_COPY_RANGE = (errno.EXDEV, errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP, errno.EBADF)

DESCRIPTION = """\
Checks an append-only file of Disque: every record, and every job in it.
"""
EPILOG = """\
exit status: 0 the file is valid, or was fixed or salvaged; 1 otherwise; 130 interrupted.
Stop the server first: a record that it is writing looks like damage, and --fix would remove it.
"""


class Refused(Exception):
    """The command refused to change anything; the text says why."""


@one_line("disque-check-aof")
def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``disque-check-aof``; see ``run``."""
    return run("disque-check-aof", DESCRIPTION, Scanner, arguments)


def run(
    program: str, description: str, kind: type[Scanner], arguments: Sequence[str] | None = None
) -> int:
    """Run a tool for files of one kind.

    Args:
        program: its name.
        description: what it is for.
        kind: knows the records.
        arguments: the command line without the program's name; default: the process's.

    Returns:
        The exit status: 0 for a valid, fixed or salvaged file, 130 when interrupted, otherwise 1.
    """
    options = _parse(program, description, kind, sys.argv[1:] if arguments is None else arguments)
    options.kind = kind
    path = Path(options.file)
    try:
        return _run(path, options)
    except Refused as error:
        print(error)
    except BrokenPipeError:
        # Nobody reads our output any more; without this, Python complains again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        print(f"Failed: {error}")
    except KeyboardInterrupt:
        return _INTERRUPTED
    return 1


class _Parser(Parser):
    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stdout)
        print(f"Invalid arguments: {message}")
        sys.exit(1)  # like Disque's tool; argparse uses 2


def _parse(
    program: str, description: str, kind: type[Scanner], arguments: Sequence[str]
) -> argparse.Namespace:
    parser = _Parser(
        program,
        description=description,
        epilog=EPILOG,
        allow_abbrev=False,
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        "--fix",
        action="store_true",
        help="cut the file off at the first bad record, after copying it to a file beside it",
    )
    what.add_argument(
        "--salvage",
        metavar="OUT",
        type=Path,
        help="write all good records to the new file OUT, including those after damage",
    )
    parser.add_argument("--yes", action="store_true", help="do not ask before --fix")
    parser.set_defaults(trailers=False)
    if kind.can_list:
        parser.add_argument(
            "--trailers",
            action="store_true",
            help="list the jobs with a trailer: names of headers, keys, origins of dead letters",
        )
    add_version_option(parser)
    add_debug_option(parser.add_argument)
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
            raise Refused(f"Empty file: {shown_path(path)}")
        kind: type[Scanner] = options.kind
        listing: bool = options.trailers
        sums = read_sums(str(path))
        if out:
            findings = _salvage(file, sums, out, kind, listing)
        else:
            findings = _look(file, sums, kind, lambda scanner, stretch: None, listing)
        findings.show(path, out, options.program, options.fix)
        size, ok_up_to = findings.scanner.size, findings.ok_up_to
        print(f"AOF analyzed: size={size}, ok_up_to={ok_up_to}, diff={size - ok_up_to}")
        flipped = [mark for mark in findings.scanner.file.marks if mark.bit >= 0]
        if ok_up_to == size and not flipped:
            print("AOF is valid")
            return 0
        if not options.fix:
            print("AOF is not valid")
            return 0 if out is not None else 1
        if flipped:
            print(f"This will flip {len(flipped)} bits of the AOF back")
        if ok_up_to < size:
            print(
                f"This will shrink the AOF from {size} bytes, with {size - ok_up_to} bytes,"
                f" to {ok_up_to} bytes"
            )
        if not options.yes and not _agreed():
            raise Refused("Aborting...")
        _change(file, path, before, ok_up_to, flipped)
        print("Successfully truncated AOF" if ok_up_to < size else "Successfully repaired AOF")
        return 0


def _open(path: Path, write: bool) -> BinaryIO:
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # check before opening: a pipe would block
            raise OSError("Not a regular file")
        return path.open("r+b" if write else "rb", buffering=0)
    except OSError as error:
        print(f"Cannot open file: {shown_path(path)}")
        raise Refused(f"{error.strerror or error}") from error


def _agreed() -> bool:
    """Ask on the terminal whether to go on."""
    print("Continue? [y/N]: ", end="", flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


# ---- scanning ------------------------------------------------------------------------------------


def _print_trailer(at: int, job: SerialJob, trailer: Trailer) -> None:
    print(trailer_line(at, job, trailer))


def _look(
    file: BinaryIO,
    sums: Sums,
    kind: type[Scanner],
    each: Callable[[Scanner, Stretch], object],
    listing: bool,
) -> Findings:
    """Go through the file and call ``each`` with its stretches. ``listing``: print a line for each
    job with a trailer."""
    with _progress(os.fstat(file.fileno()).st_size) as progress:
        scanner = kind(file, progress, sums)
        if listing:
            scanner.each_trailer = _print_trailer
        findings = Findings(scanner)
        for stretch in scanner.stretches():
            findings.add(stretch)
            each(scanner, stretch)
    return findings


@contextlib.contextmanager
def _progress(size: int) -> Iterator[Callable[[int], object]]:
    """Show on a terminal how far the check is, if it takes more than a second."""
    start = shown = time.monotonic()

    def show(at: int) -> None:
        nonlocal shown
        now = time.monotonic()
        if now - shown < (1 if shown == start else 0.2):
            return
        shown = now
        speed = max(at, 1) / (now - start)
        left = humanize.duration((size - at) / speed)
        line = f"{at * 100 // size:3}%  {humanize.size(speed)}/s  {left} left"
        print(f"\r{line}\x1b[K", end="", file=sys.stderr, flush=True)

    if not sys.stderr.isatty():
        yield lambda at: None
        return
    try:
        yield show
    finally:
        if shown != start:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


# ---- changing files ------------------------------------------------------------------------------


def _salvage(file: BinaryIO, sums: Sums, out: Path, kind: type[Scanner], listing: bool) -> Findings:
    """Write the good records to ``out``, which is either complete or does not exist afterwards.

    Raises:
        Refused: it exists already, or there is no good record.
        OSError: it could not be written.
    """
    _refuse_existing(out)
    try:
        descriptor, temporary = tempfile.mkstemp(".tmp", f".{out.name}.", out.parent)
    except OSError as error:
        raise Refused(f"Cannot write {shown_path(out)}: {error.strerror or error}") from error
    try:
        with os.fdopen(descriptor, "wb", buffering=0) as target:

            def keep(scanner: Scanner, stretch: Stretch) -> None:
                if stretch.error is not None:
                    return
                begin = target.tell()
                _copy(file, target, stretch.start, stretch.end)
                for mark in scanner.file.marks:
                    if mark.bit >= 0 and stretch.start <= mark.start < stretch.end:
                        good = scanner.file.pread(1, mark.start)
                        os.pwrite(target.fileno(), good, begin + mark.start - stretch.start)

            findings = _look(file, sums, kind, keep, listing)
            if not target.tell():
                raise Refused(f"No good record: {shown_path(out)} was not written")
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
        raise Refused(f"File exists: {shown_path(out)}")


def _change(
    file: BinaryIO, path: Path, before: os.stat_result, length: int, flipped: list[Mark]
) -> None:
    """Copy the file, then flip bits back, and cut it to ``length``.

    Raises:
        Refused: it could not be copied, or somebody has written to it; it is unchanged.
        OSError: it could not be changed.
    """
    backup = path.with_name(path.name + time.strftime(".bak-%Y%m%d-%H%M%S"))
    try:
        _back_up(file, backup, before.st_size)
    except OSError as error:
        raise Refused(
            f"Cannot copy to {shown_path(backup)}: {error}\nThe AOF is as it was"
        ) from error
    now = os.fstat(file.fileno())
    if (now.st_size, now.st_mtime_ns) != (before.st_size, before.st_mtime_ns):
        backup.unlink()
        raise Refused("The AOF was written to while it was checked: stop the node first")
    print(f"Copied the whole AOF to {shown_path(backup)}")
    for mark in flipped:
        byte = os.pread(file.fileno(), 1, mark.start)[0]
        os.pwrite(file.fileno(), bytes((byte ^ 1 << mark.bit,)), mark.start)
    os.ftruncate(file.fileno(), length)
    os.fsync(file.fileno())
    sync_directory(path.parent)


def _back_up(file: BinaryIO, backup: Path, size: int) -> None:
    """Copy the file to ``backup``, which must not exist. Raises ``OSError``."""
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
    """Make sure that the node may open ``target``, even if root runs this."""
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
