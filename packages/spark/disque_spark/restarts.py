"""Decides whether to restart an archive, a watch or a run of ``process`` after a failure."""

import re
import time
from collections.abc import Callable

from disque_spark.failures import NOT_STARTED
from disque_spark.link import RETRIED

FIRST_PAUSE = 1.0  # s
LONGEST_PAUSE = 60.0
SAME = 5  # give up after this many failures in a row with the same text, without a batch between
MANY = 50  # give up after this many failures in a row, whatever their texts
_LOOK = 0.1
# Transient failures, however often they occur: Spark's processes were killed or too slow, nodes or
# catalogs are down or refuse for a while, others write to the table, the disk is full.
_PASSES = re.compile(
    r"failed to connect back|Python worker (?:to connect back|exited|crashed|process)"
    r"|WireError|ConnectionError"
    r"|Connection (?:reset|refused)|Broken pipe|SocketException|SocketTimeoutException|EOFException"
    r"|No space left on device|Disk quota exceeded"
    r"|CommitFailed|CommitStateUnknown|ServiceUnavailableError|ServerError|TooManyRequestsError"
    r"|AuthorizationExpiredError|database is locked"
    rf"|RefusedError: (?:{'|'.join(sorted(RETRIED))})\b"
)
# Failures that need fixing by hand: options, passwords, an old checkpoint, things that Spark cannot
# do or that are not installed.
_STAYS = re.compile(
    r"\b(?:OptionError|AnalysisException|ModuleNotFoundError|NotInstalledError|UnauthorizedError"
    r"|ForbiddenError|OAuthError)\b"
    r"|RefusedError: (?:NOAUTH|WRONGPASS|NOPERM|ERR)\b"
    r"|LeaseError: .*checkpoint is out of date|\[PYTHON_VERSION_MISMATCH\]"
    r"|\[PARSE_SYNTAX_ERROR\]|\[UNSUPPORTED_DATATYPE\]"
)
# Lines of a traceback that show code, not the error.
_PROGRAM = re.compile(r"^[ \t].*$", re.MULTILINE)
_NUMBERS = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}|\d+")


class Restarts:
    """The restart policy of something that is meant to keep running.

    Args:
        most: the most restarts in total; None: any number.
    """

    def __init__(self, most: int | None = None) -> None:
        self.count = 0
        self._most = most
        self._pause = FIRST_PAUSE
        self._last = ""
        self._same = 0
        self._stuck = 0  # failures since the last batch that are not known to be transient

    def progress(self) -> None:
        """A batch is done, so earlier failures are over."""
        self._pause = FIRST_PAUSE
        self._same = self._stuck = 0

    def pause(self, text: str, line: str) -> float | None:
        """Seconds to wait before the next start; None: do not start again.

        Args:
            text: the full text of the failure.
            line: the same in one line.
        """
        short = _NUMBERS.sub("", line)
        self._same = self._same + 1 if short == self._last else 1
        self._last = short
        if self._most is not None and self.count >= self._most:
            return None
        # If the line shows a transient failure, the rest of the text does not matter.
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
    """Wait for ``seconds``, or until ``stop`` returns true."""
    end = time.monotonic() + seconds
    while not stop() and (left := end - time.monotonic()) > 0:
        time.sleep(min(left, _LOOK))
