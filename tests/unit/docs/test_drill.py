"""docs/drill.md has a row for each incident of the drill; each cure is one of the pages'."""

import re
from pathlib import Path

import pytest

from tests.support.drill.incident import cure_of, look_of
from tests.support.drill.run import INCIDENTS, PAGE, Result, table, write_docs
from tests.support.drill.watch import ALERT, CHANNELS, LOOK, Sight


def test_the_page_has_a_row_for_each_incident() -> None:
    rows = re.findall(r"^\| (\w+)\. (.*?) \|", PAGE.read_text(), re.MULTILINE)
    assert [letter for letter, _ in rows] == list(INCIDENTS)
    for letter, title in rows:
        wanted = re.escape(INCIDENTS[letter].title).replace(r"\{jobs:,\}", "[0-9,]+")
        assert re.fullmatch(wanted, title)


@pytest.mark.parametrize("letter", INCIDENTS)
def test_a_cure_is_in_the_section_of_its_page(letter: str) -> None:
    incident = INCIDENTS[letter]
    assert incident.commands() or incident.done
    assert set(incident.signs) <= set(CHANNELS)
    if LOOK in incident.signs:
        assert incident.look()


def test_the_commands_of_a_cure_are_those_between_its_words() -> None:
    assert "QSET mail GROUPS fair" in cure_of("symptoms.md", "One tenant floods a queue")
    assert "--group small" not in cure_of("symptoms.md", "One tenant floods a queue")
    assert "QTOP mail BY group" in look_of("symptoms.md", "One tenant floods a queue")


def test_a_row_says_who_was_silent_and_whether_the_cure_helped() -> None:
    result = Result("x", "all is lost", "a.md#b", "B", "pray", [Sight(ALERT, "DisqueDown", 2.4)])
    assert not result.is_right
    result.silent.append("log")
    [row] = [line for line in table([result]).splitlines() if line.startswith("| x.")]
    assert row == (
        "| x. all is lost | `DisqueDown` 2 (fires 1m later), **not: log** | [B](a.md#b): pray "
        "| **not** |"
    )
    result.silent.clear()
    result.green = 1.0
    assert result.is_right


def test_rows_of_other_incidents_stay(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    page = tmp_path / "drill.md"
    page.write_text("before\n<!-- drill: begin -->\n<!-- drill: end -->\nafter\n")
    monkeypatch.setattr("tests.support.drill.run.PAGE", page)
    for letter in "ba":
        write_docs([Result(letter, f"incident {letter}", "a.md#b", "B", "")])
    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert text.index("| a. incident a") < text.index("| b. incident b")
