"""Decides whether an archive that has failed is restarted."""

import re
import time
from collections.abc import Callable

from disque_trio.spark.failures import NOT_STARTED
from disque_trio.spark.link import RETRIED

FIRST_PAUSE = 1.0  # s
LONGEST_PAUSE = 60.0
SAME = 5  # failures in a row that say the same, without a batch in between: it does not pass
MANY = 50  # failures in a row, whatever they say: likewise
_LOOK = 0.1
# What passes by itself, however often it comes: processes that Spark has started and that were
# killed or too slow, nodes and catalogs that are away or that refuse for a while, other writers of
# a table, a disk that somebody makes room on.
_PASSES = re.compile(
    r"failed to connect back|Python worker (?:to connect back|exited|crashed|process)"
    r"|WireError|ConnectionError"
    r"|Connection (?:reset|refused)|Broken pipe|SocketException|SocketTimeoutException|EOFException"
    r"|No space left on device|Disk quota exceeded"
    r"|CommitFailed|CommitStateUnknown|ServiceUnavailableError|ServerError|TooManyRequestsError"
    r"|AuthorizationExpiredError|database is locked"
    rf"|RefusedError: (?:{'|'.join(sorted(RETRIED))})\b"
)
# What needs fixing by hand: options, passwords, a checkpoint that went back, what Spark cannot do,
# what is not installed.
_STAYS = re.compile(
    r"\b(?:OptionError|AnalysisException|ModuleNotFoundError|NotInstalledError|UnauthorizedError"
    r"|ForbiddenError|OAuthError)\b"
    r"|RefusedError: (?:NOAUTH|WRONGPASS|NOPERM|ERR)\b"
    r"|LeaseError: .*checkpoint is an old one|\[PYTHON_VERSION_MISMATCH\]"
    r"|\[PARSE_SYNTAX_ERROR\]|\[UNSUPPORTED_DATATYPE\]"
)
# Lines of a traceback that are of the program, not of what went wrong.
_PROGRAM = re.compile(r"^[ \t].*$", re.MULTILINE)
_NUMBERS = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}|\d+")


class Restarts:
    """The restart policy of a stream that is meant to run for ever.

    Args:
        most: restarts in all; None: any number.
    """

    def __init__(self, most: int | None = None) -> None:
        self.count = 0
        self._most = most
        self._pause = FIRST_PAUSE
        self._last = ""
        self._same = 0
        self._stuck = 0  # failures that do not pass, since the last batch

    def progress(self) -> None:
        """A batch is done: what was wrong before is over."""
        self._pause = FIRST_PAUSE
        self._same = self._stuck = 0

    def pause(self, text: str, line: str) -> float | None:
        """Seconds to wait before the next start; None: it shall not be.

        Args:
            text: all that is known of the failure. line: that in a line.
        """
        short = _NUMBERS.sub("", line)
        self._same = self._same + 1 if short == self._last else 1
        self._last = short
        if self._most is not None and self.count >= self._most:
            return None
        # What it ended with may come of something that passes, whatever else is said.
        if not _PASSES.search(line):
            text = _PROGRAM.sub("", text)
            if _STAYS.search(text):
                return None
            if NOT_STARTED in line or not _PASSES.search(text):
                self._stuck += 1
                if self._same >= SAME or self._stuck >= MANY:
                    return None
        self.count += 1
        pause = self._pause
        self._pause = min(2 * pause, LONGEST_PAUSE)
        return pause


def wait(seconds: float, stop: Callable[[], object]) -> None:
    """Wait, but no longer once ``stop`` says so."""
    end = time.monotonic() + seconds
    while not stop() and (left := end - time.monotonic()) > 0:
        time.sleep(min(left, _LOOK))
