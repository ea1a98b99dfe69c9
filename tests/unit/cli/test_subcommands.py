"""The subcommands of ``disque``: their names, their tables, their progress."""

import io
import json

import pytest

from disque_bananaq.commands.table import build_table as bananaq_table
from disque_trio.cli.commandtable import built_in_table
from disque_trio.cli.subcommands import progress
from disque_trio.cli.subcommands.printing import BOLD, RED, Column, Printer, as_json, table
from disque_trio.cli.subcommands.running import load, parser_of
from disque_trio.cli.subcommands.table import TABLE, Listing, find, listed
from disque_trio.node.commands.table import build_table
from tests.support import ROOT

NAMES = [entry.name for entry in TABLE]


def called(line: str) -> str | None:
    found = find([word.encode() for word in line.split()])
    return found and found[0].name


class TestNames:
    def test_the_name_in_lower_case_calls_a_subcommand(self) -> None:
        entry, rest = find([b"queues", b"mail.*", b"--json"]) or (None, None)
        assert isinstance(entry, Listing)
        assert (entry.name, rest) == ("queues", ["mail.*", "--json"])

    @pytest.mark.parametrize("line", ["QUEUES", "Queues", "qlen queues", "queue", ""])
    def test_everything_else_is_a_command_for_the_node(self, line: str) -> None:
        assert called(line) is None

    def test_no_command_of_a_server_has_such_a_name_unless_it_is_shared(self) -> None:
        parts = {
            command.name: {part for names in command.parts for part in names.split("|")}
            for table in (build_table(), bananaq_table())
            for command in table.values()
        }
        assert "qlen" in parts
        assert "meet" in parts["cluster"]
        for entry in TABLE:
            first, *second = entry.name.split()
            taken = first in parts if not second else second[0] in parts.get(first, set())
            assert taken == entry.shared, entry

    @pytest.mark.parametrize("entry", TABLE, ids=NAMES)
    def test_each_has_a_parser_and_a_place_in_the_docs(self, entry: Listing) -> None:
        assert callable(load(entry).run)
        assert f"disque {entry.name}" in parser_of(entry).format_help()
        assert f"{entry.name} " in listed()
        text = (ROOT / "docs" / "cli.md").read_text()
        assert f"### disque {entry.name}\n" in text
        section = text.partition(f"### disque {entry.name}\n")[2].partition("\n#")[0]
        for action in parser_of(entry)._actions:
            for option in action.option_strings:
                common = option in ("-h", "--help", "--json")
                assert common or f"`{option}" in section, option

    def test_the_prompts_table_and_the_subcommands_differ(self) -> None:
        assert "queues" not in built_in_table()


COLUMNS = (
    Column[tuple[str, int]]("name", lambda row: row[0], style=lambda row: RED),
    Column[tuple[str, int]]("jobs", lambda row: f"{row[1]:,}", True),
)


class TestTables:
    def test_figures_are_aligned_to_the_right(self) -> None:
        assert table(COLUMNS, [("a", 1), ("long", 20_000)], None, colours=False) == [
            "name    jobs",
            "a          1",
            "long  20,000",
        ]

    def test_names_are_cut_off_before_figures_are(self) -> None:
        lines = table(COLUMNS, [("x" * 50, 1_234_567)], 30, colours=False)
        assert [len(line) for line in lines] == [30, 30]
        assert lines[1].endswith("~  1,234,567")

    def test_some_texts_are_never_cut_off(self) -> None:
        whole = (COLUMNS[0]._replace(shrinks=False), COLUMNS[1])
        [_, line] = table(whole, [("x" * 50, 1)], 30, colours=False)
        assert "x" * 50 in line

    def test_colours_do_not_change_the_widths(self) -> None:
        [head, line] = table(COLUMNS, [("ab", 1)], None, colours=True)
        assert head == f"\x1b[{BOLD}mname\x1b[m  \x1b[{BOLD}mjobs\x1b[m"
        assert line == f"\x1b[{RED}mab\x1b[m       1"

    def test_names_cannot_control_the_terminal(self) -> None:
        [_, line] = table(COLUMNS, [("a\x1b[2J\n", 1)], None, colours=False)
        assert line == "a\\x1b[2J\\x0a     1"

    def test_json_of_any_name_is_unicode_and_can_be_read_back(self) -> None:
        for name in ("mäil", "a\udcff", 'q"\n'):
            line = as_json({"queue": name})
            assert "\n" not in line
            assert json.loads(line.encode()) == {"queue": name}

    def test_rows_are_printed_for_people_or_for_programs(self) -> None:
        for as_programs, expected in (
            (True, '{"name": "a"}\n'),
            (False, "name  jobs\na        1\n"),
        ):
            out = io.StringIO()
            printer = Printer("test", out, io.StringIO(), json=as_programs)
            printer.rows(COLUMNS, [("a", 1)], lambda row: {"name": row[0]}, "None.")
            assert out.getvalue() == expected

    def test_people_are_told_that_there_is_nothing(self) -> None:
        for as_programs, expected in ((True, ""), (False, "None.\n")):
            out = io.StringIO()
            Printer("test", out, io.StringIO(), json=as_programs).rows(
                COLUMNS, [], lambda row: {}, "None."
            )
            assert out.getvalue() == expected


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class TestProgress:
    def test_it_tells_number_share_rate_and_time_left(self) -> None:
        assert progress.told("moved", 500_000, 2_000_000, 10.0) == (
            "moved 500,000 of 2,000,000  25 %  50k/s  30 s left"
        )
        assert progress.told("moved", 0, 10, 0.0) == "moved 0 of 10  0 %"
        assert progress.told("exported", 5, None, 5.0) == "exported 5  1.0/s"

    def test_more_than_expected_is_not_more_than_all(self) -> None:
        assert "100 %" in progress.told("moved", 12, 10, 1.0)
        assert progress.bar(12, 10, 4) == "[####] "

    def test_a_bar_grows_in_place_and_goes_away(self) -> None:
        now = 0.0
        out = _Terminal()
        shown = progress.Meter(out, "moved", 10, lambda: now)
        now = 1.0
        shown.add(5)
        shown.end()
        assert out.getvalue() == (
            f"\r\x1b[K[{'#' * 15}{'.' * 15}] moved 5 of 10  50 %  5.0/s  1 s left\r\x1b[K"
        )

    def test_lines_come_now_and_then_elsewhere(self) -> None:
        now = 0.0
        out = io.StringIO()
        shown = progress.Meter(out, "moved", 100, lambda: now)
        for second in range(25):
            now = float(second)
            shown.add(4)
        shown.end()
        assert out.getvalue().splitlines() == [
            "moved 44 of 100  44 %  4.4/s  12 s left",
            "moved 84 of 100  84 %  4.2/s  3.8 s left",
        ]
