"""What INFO tells of the processes of a server."""

from disque_trio.health.lines import AlarmLine, format_line
from disque_trio.node.sibling_table import (
    DOWN,
    PATIENCE,
    SILENT,
    SiblingReport,
    SiblingTable,
    read_report,
)


def report(number: int, jobs: int) -> SiblingReport:
    figures = {"process_id": 100 + number, "uptime_in_seconds": 5, "registered_jobs": jobs}
    return SiblingReport(b"%040d" % number, f"127.0.0.1:{7711 + number}", figures)


def test_a_report_is_read_as_it_was_told() -> None:
    told = report(1, 7)
    read = read_report(told.words())
    assert (read.id, read.address, read.figures) == (told.id, told.address, told.figures)


def test_each_process_has_a_line_and_there_are_sums() -> None:
    table = SiblingTable(1, 3)
    table.heard(0, report(0, 3), 10.0)
    fields = table.fields(report(1, 4), False, 10.0)
    assert fields == {
        "processes": 3,
        "process": 1,
        "processes_up": 2,
        "process0": f"state=up,id={0:040d},address=127.0.0.1:7711,process_id=100,"
        "uptime_in_seconds=5,registered_jobs=3",
        "process1": f"state=up,id={1:040d},address=127.0.0.1:7712,process_id=101,"
        "uptime_in_seconds=5,registered_jobs=4",
        "process2": "state=down,id=,address=",
        "processes_registered_jobs": 7,
    }


def test_one_that_is_gone_is_known_but_its_figures_are_not_added() -> None:
    table = SiblingTable(0, 2)
    table.heard(1, report(1, 3), 10.0)
    table.gone(1)
    fields = table.fields(report(0, 4), False, 10.0)
    assert fields["process1"] == f"state=down,id={1:040d},address=127.0.0.1:7712"
    assert (fields["processes_up"], fields["processes_registered_jobs"]) == (1, 4)
    table.heard(1, report(1, 5), 11.0)
    assert table.fields(report(0, 4), False, 11.0)["processes_registered_jobs"] == 9


def test_one_that_says_nothing_is_silent_and_one_that_loads_is_not_up() -> None:
    table = SiblingTable(0, 2)
    table.heard(1, report(1, 3), 10.0)
    fields = table.fields(report(0, 4), True, 10.1 + PATIENCE)
    assert str(fields["process0"]).startswith("state=loading,")
    assert str(fields["process1"]).startswith("state=silent,")
    assert (fields["processes_up"], fields["processes_registered_jobs"]) == (0, 7)


def test_what_is_wrong_with_others_is_known_while_they_are_connected() -> None:
    table = SiblingTable(0, 3)
    line = AlarmLine("damaged", "warning", 5, "", "it was damaged, twice")
    assert table.silent(0.0) == [(1, DOWN), (2, DOWN)]
    table.heard_alarms(2, [format_line(line).encode()])
    table.heard(2, report(2, 0), 0.0)
    table.heard(1, report(1, 0), 0.0)
    assert table.alarms() == [line._replace(process=2)]
    assert table.silent(1.0) == []
    assert table.silent(PATIENCE + 1) == [(1, SILENT), (2, SILENT)]
    table.gone(2)
    assert table.alarms() == []
    assert table.silent(1.0) == [(2, DOWN)]
