"""The progress line: what it says, and that it is not printed without a terminal."""

import pytest

from disque_spark.terminal import Part, Reading, Stage, TerminalProgress, share_of


def test_a_stage_of_which_nobody_knows_how_much_is_done_is_named() -> None:
    assert Stage("findings", 5).line(9, None) == "findings"


def test_a_stage_says_how_much_is_done_how_fast_and_until_when() -> None:
    stage = Stage(Reading("events: 3 segments", 235_000_000), 100)
    line = stage.line(110, 0.25)
    assert line == "[####............]  25%  30 s left  25,000 events/s  events: 3 segments"
    # Spark adds stages to a job while it runs: the line does not go back.
    assert " 25%" in stage.line(115, 0.1)
    assert "left" not in stage.line(140, 1.0)
    assert "5 min left" in Stage("findings", 0).line(100, 0.25)
    assert "left" not in Stage("findings", 0).line(100, 0.01)


def test_parts_of_a_stage_share_its_bar() -> None:
    stage = Stage(Part("page: queues", 0.0, 0.25), 100)
    assert stage.line(110, None) == "page: queues"
    assert " 12%" in stage.line(110, 0.5)
    stage.go_on(Part("page: jobs", 0.25, 0.75))
    assert stage.line(120, None) == "[####............]  25%  60 s left  page: jobs"
    assert " 50%" in stage.line(120, 0.5)
    stage.go_on(Part("page: nodes", 0.75, 1.0))
    assert " 75%" in stage.line(130, 0.0)
    assert "100%" in stage.line(140, 1.0)


def test_a_stage_goes_on_with_its_parts_and_ends_with_another_one(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    progress = TerminalProgress()
    shown = []
    for text in (Part("a", 0, 0.5), Part("b", 0.5, 1.0), Part("a", 0, 0.5), "other"):
        progress(text)
        shown.append("50%" in capsys.readouterr().err)
    assert shown == [False, True, False, False]


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


def test_on_a_terminal_a_line_is_drawn_and_cleared(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    progress = TerminalProgress()
    progress("reading")
    shown = capsys.readouterr().err
    assert shown.startswith("\r")
    assert "reading" in shown
    progress.end()
    assert capsys.readouterr().err.strip() == ""


def test_the_line_does_not_wrap(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "40")
    progress = TerminalProgress()
    progress("reading " * 20)
    progress.end()
    lines = capsys.readouterr().err.split("\r")
    assert max(map(len, lines)) == 39
