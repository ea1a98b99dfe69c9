"""The log of the node: structlog, with Redis's four levels.

Lines are for people on a terminal, and JSON elsewhere, unless ``log-format`` says otherwise. They
go to ``logfile`` (empty: standard output), and with ``syslog-enabled`` also to the system log. The
level can change at runtime.
"""

import os
import sys
import syslog
from typing import IO, Any

import structlog
from structlog.typing import EventDict, WrappedLogger

LEVELS = {"debug": 0, "verbose": 1, "notice": 2, "warning": 3}
_SYSLOG_LEVELS = {
    "debug": syslog.LOG_DEBUG,
    "verbose": syslog.LOG_INFO,
    "notice": syslog.LOG_NOTICE,
    "warning": syslog.LOG_WARNING,
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


class _Output:
    """The output that structlog writes to."""

    def __init__(self, file: IO[str]) -> None:
        self.file = file

    def write_line(self, line: str) -> None:
        try:
            self.file.write(line + "\n")
            self.file.flush()
        except (OSError, ValueError):
            # A full disk or a closed pipe must not stop the node.
            pass

    debug = verbose = notice = warning = write_line


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
        file = open(path, "a", encoding="utf-8") if path else sys.stdout  # noqa: SIM115
        self._file: IO[str] = file
        terminal = file.isatty()
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
        self.log = Log(_Output(file), processors, {"pid": os.getpid()})

    def close(self) -> None:
        """Close the log's file."""
        if self._file is not sys.stdout:
            self._file.close()

    def set_level(self, level: str) -> None:
        """Show ``level`` and above from now on."""
        self._filter.least = LEVELS[level]
