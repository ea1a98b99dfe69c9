"""The log survives the rotation of its file, and tells the journal its levels."""

import io
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO

import pytest

from disque_trio.process.logs import Logging, is_journal


def count(file: Path) -> int:
    return len(file.read_bytes().splitlines())


@pytest.fixture
def log(tmp_path: Path) -> Logging:
    return Logging(path=str(tmp_path / "log"))


@pytest.mark.parametrize("away", [lambda file: file.rename(f"{file}.1"), Path.unlink])
def test_a_file_that_is_moved_away_is_begun_anew_with_the_next_line(
    log: Logging, tmp_path: Path, away: Callable[[Path], None]
) -> None:
    file = tmp_path / "log"
    log.log.notice("one")
    away(file)
    log.log.notice("two")
    log.log.notice("three")
    assert count(file) == 2
    if (tmp_path / "log.1").exists():
        assert count(tmp_path / "log.1") == 1
    log.close()


def test_a_file_that_is_copied_and_emptied_is_gone_on_with(log: Logging, tmp_path: Path) -> None:
    log.log.notice("one")
    os.truncate(tmp_path / "log", 0)
    log.log.notice("two")
    assert count(tmp_path / "log") == 1
    log.close()


def test_a_new_file_appears_when_it_is_asked_for(log: Logging, tmp_path: Path) -> None:
    (tmp_path / "log").rename(tmp_path / "log.1")
    log.reopen()
    assert count(tmp_path / "log") == 0
    log.reopen()
    log.log.notice("one")
    assert (count(tmp_path / "log"), count(tmp_path / "log.1")) == (1, 0)
    log.close()


def test_lines_go_to_the_old_file_while_no_new_one_can_be_made(tmp_path: Path) -> None:
    place = tmp_path / "logs"
    place.mkdir()
    log = Logging(path=str(place / "log"))
    place.rename(tmp_path / "moved")
    log.log.notice("one")
    log.reopen()
    assert count(tmp_path / "moved" / "log") == 1
    place.mkdir()
    log.log.notice("two")
    assert (count(place / "log"), count(tmp_path / "moved" / "log")) == (1, 1)
    log.close()


def test_the_path_stays_when_the_directory_of_the_process_changes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    log = Logging(path="log")
    monkeypatch.chdir("elsewhere")
    log.log.notice("one")
    (tmp_path / "log").rename(tmp_path / "log.1")
    log.log.notice("two")
    assert (count(tmp_path / "log"), count(tmp_path / "log.1")) == (1, 1)
    assert list((tmp_path / "elsewhere").iterdir()) == []
    log.close()


def test_a_log_that_is_closed_opens_no_file(log: Logging, tmp_path: Path) -> None:
    log.close()
    (tmp_path / "log").unlink()
    log.log.notice("one")
    log.reopen()
    assert not (tmp_path / "log").exists()


def stream_of(file: IO[str]) -> str:
    status = os.fstat(file.fileno())
    return f"{status.st_dev}:{status.st_ino}"


def priorities(text: str) -> list[str]:
    """The priorities that systemd's journal would read (sd-daemon(3))."""
    return [line[1] if line[:1] == "<" and line[2:3] == ">" else "" for line in text.splitlines()]


@pytest.mark.parametrize("format", ["json", "console"])
def test_the_journal_is_told_the_level_of_every_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, format: str
) -> None:
    with (tmp_path / "journal").open("w+") as journal:
        monkeypatch.setattr(sys, "stdout", journal)
        monkeypatch.setenv("JOURNAL_STREAM", stream_of(journal))
        log = Logging("debug", format).log
        log.debug("one")
        log.verbose("one")
        log.notice("one")
        log.warning("one")
        before = len((tmp_path / "journal").read_text())
        try:
            raise ValueError("a traceback has several lines")
        except ValueError:
            log.warning("one", exc_info=True)
        text = (tmp_path / "journal").read_text()
    assert priorities(text[:before]) == ["7", "6", "5", "4"]
    rest = priorities(text[before:])
    assert set(rest) == {"4"}
    assert (len(rest) > 1) == (format == "console")


@pytest.mark.parametrize("stream", ["", "1:2", "nonsense"])
def test_nothing_else_is_told_levels(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, stream: str
) -> None:
    with (tmp_path / "out").open("w+") as out:
        monkeypatch.setattr(sys, "stdout", out)
        monkeypatch.setenv("JOURNAL_STREAM", stream)
        Logging("debug", "json").log.warning("one")
        assert priorities((tmp_path / "out").read_text()) == [""]
        # The file of a log is not the journal, even if standard output is.
        monkeypatch.setenv("JOURNAL_STREAM", stream_of(out))
        log = Logging(path=str(tmp_path / "log"))
        log.log.warning("one")
        log.close()
        assert priorities((tmp_path / "log").read_text()) == [""]


def test_an_output_without_a_descriptor_is_not_the_journal() -> None:
    assert not is_journal(io.StringIO(), {"JOURNAL_STREAM": "1:2"})
