"""Alarms as fields of INFO."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from disque_trio.health.keeper import Alarm
from disque_trio.health.lines import (
    AlarmLine,
    fields_of,
    format_line,
    in_order,
    line_of,
    lines_in,
    lines_of,
    read_line,
)
from disque_trio.health.table import CONDITIONS, CRITICAL, SEVERITIES, WARNING

words = st.text(st.characters(codec="utf-8", exclude_characters=","))


@given(
    st.sampled_from(sorted(CONDITIONS)),
    st.sampled_from(SEVERITIES),
    st.integers(0, 1 << 40),
    words,
    st.text(),
    st.integers(-1, 99),
)
def test_a_line_says_what_was_written(
    kind: str, severity: str, since: int, about: str, cause: str, process: int
) -> None:
    line = AlarmLine(kind, severity, since, about, cause, process)
    text = format_line(line)
    assert not set(text) & set("\r\n\0")
    read = read_line(text)
    assert read._replace(about="", cause="") == line._replace(about="", cause="")
    if about.isprintable() and cause.isprintable():
        assert read == line


@pytest.mark.parametrize(
    "text", ["", "kind=split", "severity=bad,kind=split,cause=x", "severity=critical,cause=x"]
)
def test_what_is_no_line_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="an alarm has"):
        read_line(text)


def test_the_section_counts_and_lists_the_worst_first() -> None:
    alarms = [
        Alarm("rewrite", "no space, no file", "", 5_000),
        Alarm("peer-lost", "it is down", "10.0.0.2:7711", 9_000),
    ]
    fields = fields_of(lines_of(alarms))
    assert fields == {
        "alarms": 2,
        "alarms_critical": 1,
        "alarms_warning": 1,
        "alarm0": "severity=critical,kind=peer-lost,since=9,about=10.0.0.2:7711,cause=it is down",
        "alarm1": "severity=warning,kind=rewrite,since=5,about=,cause=no space, no file",
    }
    info = {name: str(value) for name, value in fields.items()}
    assert lines_in(info) == lines_of(alarms)


def test_of_several_processes_each_line_names_its_own() -> None:
    alarm = Alarm("damaged", "it was damaged", "", 7_000)
    line = line_of(alarm, 1)
    assert format_line(line).startswith("process=1,")
    worst = AlarmLine("split", CRITICAL, 9, "", "it is split", 0)
    assert in_order([line, worst]) == [worst, line]
    assert line.severity == WARNING


def test_lines_of_newer_releases_are_read_as_far_as_they_are_known() -> None:
    info = {"alarms": "2", "alarm0": "severity=warning,kind=new,since=1,more=x,about=,cause=y"}
    info["alarm1"] = "something else"
    assert lines_in(info) == [AlarmLine("new", WARNING, 1, "", "y")]
