"""The files of the event log: their names, the open one, and files left over from a crash.

``events-<node>-<start>-<number>.jsonl.open`` is being written by the process that holds a lock on
it. Without the suffix it is complete and will not change (``closing``). Several processes may work
in one directory at the same time, even for the same node: whoever has the lock owns the file.
"""

import fcntl
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

OPEN = ".open"
PACKED = ".gz"

_CHUNK = 1 << 16
_DIRECTORY_MODE = 0o750
_FILE_MODE = 0o640


class Naming:
    """The names of one node's files.

    Attributes:
        left: matches the names of files that are open, or were when their process died.
        closed: matches the names of complete files.
    """

    def __init__(self, node: str) -> None:
        self._begin = f"events-{node[:8]}-"
        name = re.escape(self._begin) + r"\d+-\d+\.jsonl"
        self.left = re.compile(name + re.escape(OPEN))
        self.closed = re.compile(name + f"(?:{re.escape(PACKED)})?")
        self._any = re.compile(f"({name})(?:{re.escape(PACKED)})?(?:{re.escape(OPEN)})?")

    def order(self, file: str) -> tuple[int, int, str]:
        """Return the position of a file among those of the node, and the name that it has when it
        is complete; the name is empty if the file is not one of them."""
        found = self._any.fullmatch(file)
        if found is None:
            return 0, 0, ""
        start, number = found[1].removesuffix(".jsonl").rsplit("-", 2)[1:]
        return int(start), int(number), found[1]

    def name(self, start: int, number: int) -> str:
        """Return the name of a complete file that begins at ``start`` (ms), made unique by
        ``number``."""
        return f"{self._begin}{start:013d}-{number}.jsonl"


class Segment:
    """A file on which this process holds the lock.

    Attributes:
        name: its name once it is closed.
        path: where it is now.
        size: the bytes that are valid; the beginning of a failed write may follow them.
        started: when it was opened, in ms since the epoch, by the clock of whoever opened it.
    """

    def __init__(self, fd: int, path: Path, started: int) -> None:
        self.fd = fd
        self.path = path
        self.name = path.name.removesuffix(OPEN)
        self.size = os.fstat(fd).st_size
        self.started = started

    def append(self, data: bytes) -> None:
        """Append all of ``data``, or nothing. Raises OSError."""
        rest = memoryview(data)
        end = self.size
        while rest:
            count = os.pwrite(self.fd, rest, end)
            end += count
            rest = rest[count:]
        self.size = end

    def due(self, now: int, size: int, age: int) -> bool:
        """Return whether it has ``size`` bytes or is ``age`` ms old (0: at no age). Also if it
        begins later than now, since somebody has then set the clock back."""
        return self.size >= size or (age > 0 and not 0 <= now - self.started < age)


def create(directory: Path, naming: Naming, now: int) -> Segment:
    """Create a new file, and the directory if there is none. Raises OSError."""
    directory.mkdir(_DIRECTORY_MODE, parents=True, exist_ok=True)
    number = -1
    while True:
        number += 1
        name = naming.name(now, number)
        path = directory / (name + OPEN)
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        try:
            fd = os.open(path, flags, _FILE_MODE)
        except FileExistsError:
            continue
        if not _lock(fd, path):
            os.close(fd)  # another process took it for a leftover
        elif (directory / name).exists() or (directory / (name + PACKED)).exists():
            path.unlink()
            os.close(fd)
        else:
            return Segment(fd, path, now)


def latest(directory: Path, naming: Naming, but: str) -> str:
    """Return the node's last segment that has a line, by its name when complete, except the one
    called ``but``. Empty if there is none. Raises OSError."""
    found = [
        order
        for entry in os.scandir(directory)
        if (order := naming.order(entry.name))[2] not in ("", but) and _size_of(entry)
    ]
    return max(found, default=(0, 0, ""))[2]


def _size_of(entry: "os.DirEntry[str]") -> int:
    try:
        return entry.stat().st_size
    except FileNotFoundError:
        return 0  # it was renamed or removed meanwhile


def leftovers(
    directory: Path, naming: Naming, resumed: str = "", known: int = 0
) -> Iterator[Segment]:
    """Yield the files whose process has died, cut to whole lines.

    Args:
        resumed: the name of the file of which only the first ``known`` bytes are valid, since the
            node will repeat what follows them.

    Raises:
        OSError: a file cannot be opened or cut.
    """
    try:
        entries = sorted(entry.name for entry in directory.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return  # whoever wants to write there will report it
    for name in entries:
        if not naming.left.fullmatch(name):
            continue
        path = directory / name
        try:
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            continue  # closed meanwhile
        try:
            if not _lock(fd, path):
                os.close(fd)
                continue
            size = os.fstat(fd).st_size
            mine = name.removesuffix(OPEN) == resumed
            os.ftruncate(fd, min(known, size) if mine else _whole_lines(fd, size))
            segment = Segment(fd, path, 0)
        except BaseException:
            os.close(fd)
            raise
        yield segment


def _lock(fd: int, path: Path) -> bool:
    """Lock the file open as ``fd``. Returns False if another process owns or already closed it."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.path.samestat(os.fstat(fd), path.stat())
    except (BlockingIOError, FileNotFoundError):
        return False


def _whole_lines(fd: int, size: int) -> int:
    """Return where the last whole line ends. After a power failure, anything may follow."""
    end = _line_feed(fd, size) + 1
    while end:
        start = _line_feed(fd, end - 1) + 1
        try:
            json.loads(os.pread(fd, end - start, start))
        except ValueError:
            end = start
        else:
            break
    return end


def _line_feed(fd: int, end: int) -> int:
    """Return the offset of the last line feed before ``end``; -1 if there is none."""
    while end > 0:
        start = max(end - _CHUNK, 0)
        found = os.pread(fd, end - start, start).rfind(b"\n")
        if found >= 0:
            return start + found
        end = start
    return -1
