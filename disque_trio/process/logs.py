"""The log of the node: structlog, with Redis's four levels, and ``error`` for what a worker's
program could not do.

Lines are for people on a terminal, and JSON elsewhere, unless ``log-format`` says otherwise. They
go to ``logfile`` (empty: standard output), and with ``syslog-enabled`` also to the system log. If
standard output is systemd's journal, each line begins with its level (sd-daemon(3)). A file that
was renamed or removed, as logrotate does, is opened again before the next line. The level can
change at runtime.
"""

import os
import sys
import syslog
from collections.abc import Mapping
from typing import IO, Any

import structlog
from structlog.typing import EventDict, WrappedLogger

from disque_trio.disk import has_moved

LEVELS = {"debug": 0, "verbose": 1, "notice": 2, "warning": 3, "error": 4}
_SYSLOG_LEVELS = {
    "debug": syslog.LOG_DEBUG,
    "verbose": syslog.LOG_INFO,
    "notice": syslog.LOG_NOTICE,
    "warning": syslog.LOG_WARNING,
    "error": syslog.LOG_ERR,
}


class Log(structlog.BoundLoggerBase):
    """The logger: one method per level, which takes an event and fields."""

    def debug(self, event: str, **fields: Any) -> None:
        """For developers."""
        self._proxy_to_logger("debug", event, **fields)

    def verbose(self, event: str, **fields: Any) -> None:
        """For what is rarely useful."""
        self._proxy_to_logger("verbose", event, **fields)

    def notice(self, event: str, **fields: Any) -> None:
        """For what an operator may want to know."""
        self._proxy_to_logger("notice", event, **fields)

    def warning(self, event: str, **fields: Any) -> None:
        """For what an operator has to know."""
        self._proxy_to_logger("warning", event, **fields)

    def error(self, event: str, **fields: Any) -> None:
        """For what the programmer of a task has to know."""
        self._proxy_to_logger("error", event, **fields)


def is_journal(file: IO[str], environment: Mapping[str, str]) -> bool:
    """Whether ``file`` leads to systemd's journal, which ``JOURNAL_STREAM`` in the environment
    tells by device and inode."""
    try:
        status = os.fstat(file.fileno())
    except (OSError, ValueError):
        return False
    return environment.get("JOURNAL_STREAM") == f"{status.st_dev}:{status.st_ino}"


class _Output:
    """The output that structlog writes to: a method per level.

    Args:
        path: of a file to append to, absolute; empty: standard output.

    Raises:
        OSError: the file cannot be opened.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self.file: IO[str] = sys.stdout
        if path:
            self.file = self._opened()
        self._prefixed = not path and is_journal(self.file, os.environ)

    def _opened(self) -> IO[str]:
        return open(self._path, "a", encoding="utf-8")

    def reopen(self) -> None:
        """If the file has been moved away, begin a new one. If that fails, keep the old one."""
        if self._path and not self.file.closed and has_moved(self.file.fileno(), self._path):
            try:
                fresh = self._opened()
            except OSError:
                return
            self.file.close()
            self.file = fresh

    def close(self) -> None:
        """Close the file."""
        if self._path:
            self.file.close()

    def debug(self, text: str) -> None:
        self._write("debug", text)

    def verbose(self, text: str) -> None:
        self._write("verbose", text)

    def notice(self, text: str) -> None:
        self._write("notice", text)

    def warning(self, text: str) -> None:
        self._write("warning", text)

    def error(self, text: str) -> None:
        self._write("error", text)

    def _write(self, level: str, text: str) -> None:
        self.reopen()
        if self._prefixed:
            prefix = f"<{_SYSLOG_LEVELS[level]}>"
            text = "\n".join(prefix + line for line in text.split("\n"))
        try:
            self.file.write(text + "\n")
            self.file.flush()
        except (OSError, ValueError):
            # A full disk or a closed pipe must not stop the node.
            pass


class _Filter:
    def __init__(self, level: str) -> None:
        self.least = LEVELS[level]

    def __call__(self, logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
        if LEVELS[method] < self.least:
            raise structlog.DropEvent
        event["level"] = method
        return event


def _in_reading_order(logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
    """Put the fields that every line has first, so that lines are aligned."""
    first = {key: event.pop(key) for key in ("time", "level", "pid", "event")}
    return first | dict(event)


def _to_syslog(logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
    fields = " ".join(f"{k}={v}" for k, v in event.items() if k not in ("event", "level", "time"))
    syslog.syslog(_SYSLOG_LEVELS[method], f"{event['event']} {fields}".rstrip())
    return event


class Logging:
    """Owns the destination and the level of the log.

    Args:
        level: debug, verbose, notice or warning.
        format: auto, console or json.
        path: file to append to; empty: standard output.
        syslog_ident: name in the system log; None: do not use it.
        syslog_facility: local0 to local7, or another of syslog's names.

    Raises:
        OSError: the file cannot be opened.
    """

    def __init__(
        self,
        level: str = "notice",
        format: str = "auto",
        path: str = "",
        syslog_ident: str | None = None,
        syslog_facility: str = "local0",
    ) -> None:
        self._output = _Output(os.path.abspath(path) if path else "")
        terminal = self._output.file.isatty()
        if format == "auto":
            format = "console" if terminal else "json"
        self._filter = _Filter(level)
        processors: list[structlog.typing.Processor] = [
            self._filter,
            structlog.processors.TimeStamper(fmt="iso", utc=format == "json", key="time"),
        ]
        if syslog_ident is not None:
            facility = getattr(syslog, "LOG_" + syslog_facility.upper())
            syslog.openlog(syslog_ident, syslog.LOG_PID, facility)
            processors.append(_to_syslog)
        processors.append(structlog.processors.format_exc_info)
        if format == "json":
            processors += [_in_reading_order, structlog.processors.JSONRenderer()]
        else:
            processors.append(structlog.dev.ConsoleRenderer(colors=terminal, timestamp_key="time"))
        self.log = Log(self._output, processors, {"pid": os.getpid()})

    def close(self) -> None:
        """Close the log's file."""
        self._output.close()

    def reopen(self) -> None:
        """If the log's file has been moved away, begin a new one now, not at the next line."""
        self._output.reopen()

    def set_level(self, level: str) -> None:
        """Show ``level`` and above from now on."""
        self._filter.least = LEVELS[level]
