"""The log lines of a library inside somebody else's program, or in a command of this project."""

import sys
from functools import partial
from typing import Any, Protocol, cast

import structlog
from structlog.typing import FilteringBoundLogger


class CommandLog(Protocol):
    """The log of a command, with Redis's levels."""

    def debug(self, event: str, **fields: Any) -> None: ...
    def notice(self, event: str, **fields: Any) -> None: ...
    def warning(self, event: str, **fields: Any) -> None: ...


_command: CommandLog | None = None


def lines_go_to(log: CommandLog | None) -> None:
    """Have all lines of libraries in this process go to the log of its command, whose form they
    then have; None: it is no command any more."""
    global _command
    _command = log


def _in_command(log: CommandLog, method: str) -> Any:
    if method == "exception":
        return partial(log.warning, exc_info=True)
    return {"debug": log.debug, "info": log.notice}.get(method, log.warning)


class _Log:
    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, method: str) -> Any:
        if _command is not None:
            return _in_command(_command, method)
        if structlog.is_configured():
            return getattr(structlog.get_logger(self._name), method)
        return getattr(structlog.wrap_logger(structlog.PrintLogger(sys.stderr)), method)


def library_log(name: str) -> FilteringBoundLogger:
    """Return the log of a library. Its lines go where ``lines_go_to`` says, or else to structlog's
    logger of this name. Until the program has configured structlog, they go to standard error: what
    a program prints is its own, and other programs may read it."""
    return cast(FilteringBoundLogger, _Log(name))
