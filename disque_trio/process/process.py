"""System calls of a server process: descriptors, directories, a pid file, the background."""

import os
import resource
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
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


def detach() -> Callable[[], None]:
    """Go on in the background, without a terminal. Returns a function to call when the server
    serves; until then, ``sys.stderr`` is that of the process that was started.

    That process waits for the call, and exits with 0. If the server ends before, it exits with the
    server's status.
    """
    sys.stdout.flush()
    # Open all three, in case the process was started without: then a pipe cannot be one of them.
    while (null := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # if it was ignored, there would be no status
    if child := os.fork():
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os._exit(_exit_status(child))
    os.setsid()
    reader, writer = os.pipe()
    if server := os.fork():
        os.close(writer)
        if os.read(reader, 1):
            os._exit(0)
        status = _exit_status(server)
        if status <= 0:
            print("disque-server: stopped or killed while starting", file=sys.stderr, flush=True)
        os._exit(status if status > 0 else 1)
    os.close(reader)
    usual = sys.stderr
    # Programs that the server starts do not inherit this copy, which they would keep open.
    sys.stderr = own = open(os.dup(2), "w", buffering=1, errors="backslashreplace")  # noqa: SIM115
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    os.close(null)

    def served() -> None:
        sys.stderr = usual
        own.close()
        with suppress(OSError):  # nobody waits any more
            os.write(writer, b".")
        os.close(writer)

    return served


def _exit_status(child: int) -> int:
    """Wait for the end of ``child``; return its exit status, or minus the signal."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
