"""The progress line: what it says, and that it is not printed without a terminal."""

import re
from types import SimpleNamespace

import pytest

from disque_spark.terminal import Part, Reading, TerminalProgress, share_of


class Shown:
    """What is on the terminal, a line at a time."""

    def __init__(
        self,
        capsys: pytest.CaptureFixture[str],
        monkeypatch: pytest.MonkeyPatch,
        columns: int = 100,
    ) -> None:
        monkeypatch.setattr("sys.stderr.isatty", lambda: True)
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.setenv("COLUMNS", str(columns))
        self.progress = TerminalProgress()
        self._capsys = capsys

    def done(self, share: float) -> None:
        """Spark reports that a share of the work is done."""
        self.progress._heard(
            [SimpleNamespace(num_completed_tasks=round(share * 100), num_tasks=100)]
        )

    def line(self) -> str:
        """The line as it is now."""
        self._capsys.readouterr()
        bar = self.progress._bar
        assert bar is not None
        bar.refresh()
        written = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self._capsys.readouterr().err)
        return written.split("\r")[-1].strip("\n")


def test_a_stage_says_what_it_does_and_how_much_is_done(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = Shown(capsys, monkeypatch)
    try:
        shown.progress(Reading("events: [3] segments", 235_000_000))
        assert "events: [3] segments" in shown.line()
        assert "%" not in shown.line()
        shown.done(0.25)
        assert " 25%" in shown.line()
        # Spark adds stages to a job while it runs: the line does not go back.
        shown.done(0.1)
        assert " 25%" in shown.line()
        shown.done(0.5)
        assert "events/s" in shown.line()
        shown.progress("other")
        assert "%" not in shown.line()
    finally:
        shown.progress.end()


def test_parts_of_a_stage_share_its_bar(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = Shown(capsys, monkeypatch)
    try:
        shown.progress(Part("page: queues", 0.0, 0.25))
        shown.done(0.5)
        assert " 12%" in shown.line()
        shown.progress(Part("page: jobs", 0.25, 0.75))
        assert re.search(r" 25%.*page: jobs", shown.line())
        shown.done(0.5)
        assert " 50%" in shown.line()
        shown.progress(Part("page: nodes", 0.75, 1.0))
        assert " 75%" in shown.line()
        shown.done(1.0)
        assert "100%" in shown.line()
        shown.progress(Part("again", 0.0, 0.5))
        assert "%" not in shown.line()
    finally:
        shown.progress.end()


def test_stages_count_alike_and_those_without_tasks_do_not() -> None:
    assert share_of([(5, 10), (0, 1000)]) == 0.25
    assert share_of([(0, 0)]) is None
    assert share_of([]) is None


def test_without_a_terminal_nothing_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    progress = TerminalProgress()
    progress("something")
    with progress.of(None):  # type: ignore[arg-type]
        progress(Reading("events", 5))
    progress.end()
    assert capsys.readouterr() == ("", "")


def test_the_line_is_cleared_at_the_end_and_may_begin_again(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = Shown(capsys, monkeypatch)
    for _ in range(2):
        shown.progress("reading")
        assert "reading" in shown.line()
        shown.progress.end()
        assert capsys.readouterr().err.endswith("\x1b[2K")


def test_the_line_does_not_wrap(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = Shown(capsys, monkeypatch, 60)
    try:
        shown.progress("reading " * 20)
        assert 0 < len(shown.line()) <= 60
    finally:
        shown.progress.end()
