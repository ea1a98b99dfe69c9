"""Tests of where a library's log lines go."""

from collections.abc import Iterator

import pytest
import structlog

from disque_trio.respclient.log import library_log


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
