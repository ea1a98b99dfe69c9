"""The log lines of a library inside somebody else's program."""

import sys
from typing import Any, cast

import structlog
from structlog.typing import FilteringBoundLogger


class _Log:
    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, method: str) -> Any:
        if structlog.is_configured():
            return getattr(structlog.get_logger(self._name), method)
        return getattr(structlog.wrap_logger(structlog.PrintLogger(sys.stderr)), method)


def library_log(name: str) -> FilteringBoundLogger:
    """Return structlog's logger of this name. Until the program has configured structlog, lines go
    to standard error: what a program prints is its own, and other programs may read it."""
    return cast(FilteringBoundLogger, _Log(name))
