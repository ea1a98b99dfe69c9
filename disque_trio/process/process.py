"""System calls of a server process: descriptors, directories, a pid file."""

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from disque_trio.disk import sync_directory
from disque_trio.process.logs import Log

RESERVED_FILES = 256  # descriptors not for clients, such as two for each other node


def allow_clients(maxclients: int, log: Log, others: int = 0) -> int:
    """Raise the limit of open files to what ``maxclients`` needs, as far as the system allows.
    Returns how many clients are then possible. ``others``: connections that are not clients."""
    reserved = RESERVED_FILES + others
    wanted = maxclients + reserved
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft >= wanted:
        return maxclients
    try:
        most = max(hard, wanted) if hard != resource.RLIM_INFINITY else hard
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))
    except (OSError, ValueError):
        soft = hard
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        if soft < wanted:
            maxclients = max(soft - reserved, 1)
            log.warning(
                "the system allows too few open files: maxclients is lowered",
                maxclients=maxclients,
                allowed=soft,
            )
    return maxclients


@contextmanager
def pidfile(name: str) -> Iterator[None]:
    """Keep the process id in the file ``name``, unless that is empty, as long as the server runs.
    Written after the sockets are open: a second server, which finds them taken, then leaves the
    file of the first alone."""
    if not name:
        yield
        return
    path = Path(name).absolute()
    write_pidfile(path)
    try:
        yield
    finally:
        remove_pidfile(path)


def write_pidfile(path: Path) -> None:
    """Write the process id to ``path``. Raises ``OSError``."""
    new = path.with_name(f"{path.name}.{os.getpid()}")
    new.write_text(f"{os.getpid()}\n")
    new.replace(path)  # programs that wait for the file must not find it empty


def remove_pidfile(path: Path) -> None:
    """Remove ``path`` unless it is gone, or contains the id of another process."""
    try:
        if path.read_text().strip() == str(os.getpid()):
            path.unlink()
    except (OSError, ValueError):
        pass  # the server has stopped, and that is what counts


def make_directory(path: Path) -> None:
    """Create the directory ``path`` if it does not exist, so that it survives a power failure.

    Raises:
        OSError: it cannot be created, or something else has its name.
    """
    if path.is_dir():
        return
    path.mkdir()
    sync_directory(path.parent)
