"""The comparison with C Disque: whose turn it is, and the table."""

import pytest

from tools.bench.beside_c import NAMES, Count, Figure, Plan, beside_table, in_rounds, quartiles, run
from tools.bench.servers import ServerError

THEIRS, OURS = NAMES


def figures(row: str, *pairs: tuple[float, float]) -> list[Figure]:
    """Return the values of C and ours, round by round."""
    return [
        Figure(row, name, number, value)
        for number, pair in enumerate(pairs)
        for name, value in zip(NAMES, pair, strict=True)
    ]


def rows(text: str) -> dict[str, list[str]]:
    """Return the cells of each row, by the first one."""
    lines = [line for line in text.splitlines() if line.startswith("| ")][2:]
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
    return {first: rest for first, *rest in cells}


def test_each_of_the_two_is_the_first_in_every_other_round() -> None:
    turns: list[str] = []

    def unit(server: str) -> dict[str, float]:
        turns.append(server)
        return {"add": len(turns)}

    found = in_rounds(3, NAMES, [unit])
    # The first round only warms up.
    assert turns == [OURS, THEIRS, THEIRS, OURS, OURS, THEIRS, THEIRS, OURS]
    assert [(f.server, f.round, f.value) for f in found] == [
        *((THEIRS, 0, 3), (OURS, 0, 4)),
        *((OURS, 1, 5), (THEIRS, 1, 6)),
        *((THEIRS, 2, 7), (OURS, 2, 8)),
    ]


def test_turns_are_taken_in_each_unit() -> None:
    turns: list[tuple[str, str]] = []

    def unit(server: str, name: str) -> dict[str, float]:
        turns.append((name, server))
        return {}

    in_rounds(
        1, NAMES, [lambda server: unit(server, "first"), lambda server: unit(server, "second")]
    )
    assert turns[4:] == [
        *(("first", THEIRS), ("first", OURS)),
        *(("second", THEIRS), ("second", OURS)),
    ]


def test_a_ratio_is_the_median_of_those_within_a_round_with_quartiles() -> None:
    found = figures("add", (1.0, 2.0), (10.0, 10.0), (1.0, 5.0), (2.0, 6.0), (1.0, 4.0))
    assert rows(beside_table(found, []))["ADDJOB"] == [
        *("CPU µs a command", "1.0", "5.0", "**3.00**", "2.00-4.00"),
        *("", "", ""),
    ]


def test_the_order_of_the_turns_within_a_round_does_not_matter() -> None:
    found = figures("add", (1.0, 2.0), (2.0, 6.0))
    assert rows(beside_table([found[1], found[0], *found[2:]], [])) == rows(beside_table(found, []))


def test_instructions_stand_beside_the_cpu_time() -> None:
    counts = [Count("cycle", THEIRS, 20_000), Count("cycle", OURS, 30_000)]
    table = beside_table(figures("cycle", (10, 10)), counts)
    assert rows(table)["cycle"][4:] == ["1.00-1.00", "20,000", "30,000", "**1.50**"]
    assert rows(beside_table([], counts))["cycle"][1:5] == ["", "", "", ""]


def test_what_was_not_measured_has_no_row() -> None:
    assert list(rows(beside_table(figures("idle", (1, 2)), []))) == ["a node at rest"]


def test_the_mean_is_that_of_what_a_command_or_a_job_costs() -> None:
    found = figures("add", (1, 2)) + figures("take", (1, 0.5)) + figures("idle", (1, 100))
    assert "Geometric mean of the 2 ratios of CPU time: **1.00**." in beside_table(found, [])


def test_quartiles_of_one_round_are_its_value() -> None:
    assert quartiles([2.0]) == "2.00-2.00"


@pytest.mark.parametrize("path", ["", "/nowhere/disque-server"])
def test_without_c_disque_it_is_told_how_to_get_it(path: str) -> None:
    with pytest.raises(ServerError, match="git clone"):
        run(Plan(c=path))


def test_what_seems_to_cost_nothing_has_no_ratio() -> None:
    found = [*figures("take16", (0, 7)), *figures("add", (2, 4))]
    table = beside_table(found, [])
    assert rows(table)["GETJOB, pipelined by 16"][2:5] == ["7.0", "", ""]
    assert "Geometric mean of the 1 ratios of CPU time: **2.00**." in table
