"""The node's side of a compaction: runs ``disque_trio.aof.compact``, and appends to the result what
the node has written meanwhile."""

import os
import subprocess
import sys
from pathlib import Path

import trio

import disque_trio
from disque_trio.aof.compact import DAMAGED
from disque_trio.aof.disk import Disk
from disque_trio.aof.dump import NewFile
from disque_trio.aof.format import CHUNK

_PACKAGES = Path(disque_trio.__file__).parent.parent
_LONGEST_MESSAGE = 4096


class DamagedError(OSError):
    """The old file does not match its checksums."""


class Compaction(NewFile):
    """Makes a new file from the old one, which the node keeps appending to.

    Args:
        disk: the real one; the process knows no other.
        path: the old file, and the name of the new one.
        upto: offset up to which the process reads it, where a record ends.
        now: s since the epoch; leaves out what has expired by then.

    Attributes:
        copied: the new file has everything before this offset of the old one.
    """

    def __init__(self, disk: Disk, path: str, upto: int, now: int) -> None:
        self.copied = upto
        self._process: trio.Process | None = None
        self._old = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            super().__init__(disk, path)
        except OSError:
            os.close(self._old)
            raise
        files = [str(Path(name).absolute()) for name in (path, self.temporary)]
        self._command = [sys.executable, "-m", "disque_trio.aof.compact"]
        self._command += [files[0], str(upto), files[1], str(now), str(os.getpid())]

    async def run(self) -> str:
        """Run the process; return its report. Raises ``OSError`` if it failed."""
        process = self._process = await trio.lowlevel.open_process(
            self._command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=_PACKAGES,
            start_new_session=True,  # Ctrl-C is for the node
        )
        assert process.stdout is not None
        message = b""
        async with process.stdout:
            try:
                if self._abandoned:
                    process.kill()
                while data := await process.stdout.receive_some():
                    message = (message + data)[-_LONGEST_MESSAGE:]
                status = await process.wait()
            finally:
                if process.returncode is None:
                    process.kill()
                    with trio.CancelScope(shield=True):
                        await process.wait()
        if self._abandoned:
            # The process may have created it again before it was killed.
            self._disk.remove(self.temporary)
        lines = message.decode(errors="replace").splitlines() or [f"ended with status {status}"]
        if status == DAMAGED:
            raise DamagedError(f"the file is damaged: {lines[-1]}")
        if status != 0:
            raise OSError(f"the process that compacts the file: {lines[-1]}")
        if not self._abandoned:
            self.size = self._disk.size(self._fd)
        return lines[-1]

    def copy(self, upto: int) -> None:
        """Copy the old file up to ``upto``; may be called in another thread."""
        while self.copied < upto:
            data = os.pread(self._old, min(CHUNK, upto - self.copied), self.copied)
            if not data:
                raise OSError("the append-only file became shorter")
            self.append([data])
            self.copied += len(data)

    def close_old(self) -> None:
        """Close the old file, once the new one has the name. Call it in another thread: the kernel
        frees the old file when its last descriptor closes, which takes 200 ms per GB."""
        os.close(self._old)

    def abandon(self) -> None:
        """Give up, and end the process."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
        super().abandon()

    def _close(self) -> None:
        super()._close()
        os.close(self._old)
