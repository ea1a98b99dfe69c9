"""Tests of where a library's log lines go."""

from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from disque_trio.respclient.log import library_log, lines_go_to


@pytest.fixture(autouse=True)
def defaults() -> Iterator[None]:
    """What was configured before and after is left alone."""
    before = structlog.get_config() if structlog.is_configured() else None
    structlog.reset_defaults()
    yield
    structlog.reset_defaults()
    if before is not None:
        structlog.configure(**before)


def test_a_library_prints_nothing_on_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    library_log("disque.client").warning("a node is lost", address="n1:7711")
    out, err = capsys.readouterr()
    assert out == ""
    assert "n1:7711" in err


def test_a_program_that_configures_structlog_has_the_lines(
    capsys: pytest.CaptureFixture[str],
) -> None:
    log = library_log("disque.client")
    names = []

    def factory(*arguments: str) -> structlog.PrintLogger:
        names.extend(arguments)
        return structlog.PrintLogger()

    structlog.configure(logger_factory=factory)
    log.info("a node is lost")
    out, err = capsys.readouterr()
    assert (names, err) == (["disque.client"], "")
    assert out


class Lines:
    """The log of a command, which keeps the lines."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str, dict[str, Any]]] = []

    def debug(self, event: str, **fields: Any) -> None:
        self.lines.append(("debug", event, fields))

    def notice(self, event: str, **fields: Any) -> None:
        self.lines.append(("notice", event, fields))

    def warning(self, event: str, **fields: Any) -> None:
        self.lines.append(("warning", event, fields))


def test_in_a_command_they_are_lines_of_its_log(capsys: pytest.CaptureFixture[str]) -> None:
    log = library_log("disque.client")
    command = Lines()
    lines_go_to(command)
    try:
        structlog.configure()  # by what the command runs
        log.debug("asked", n=1)
        log.info("set", queue="q")
        log.warning("lost")
        log.error("wrong")
        log.exception("failed", job="D-1")
    finally:
        lines_go_to(None)
    assert command.lines == [
        ("debug", "asked", {"n": 1}),
        ("notice", "set", {"queue": "q"}),
        ("warning", "lost", {}),
        ("warning", "wrong", {}),
        ("warning", "failed", {"exc_info": True, "job": "D-1"}),
    ]
    assert capsys.readouterr() == ("", "")
