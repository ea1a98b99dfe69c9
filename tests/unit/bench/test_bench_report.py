"""The tables, and their place in the documentation."""

import pytest

from tools.bench.measure import Sample, Setting
from tools.bench.report import (
    DocsError,
    heading,
    level_table,
    matrix_table,
    replace_section,
    rest_table,
)
from tools.bench.scenarios import Plan, Rest

PAGE = "# Title\n\n<!-- bench a: begin -->\nold\n<!-- bench a: end -->\n\nMore.\n"


def sample(server: str, cpu: float, round_: int = 0, held: int = 0, own_cpu: float = 0.1) -> Sample:
    command = "ADDJOB" if server == "disque" else "LPUSH"
    return Sample(
        server=server,
        step="add",
        command=command,
        setting=Setting(round_, 16, 50, held=held),
        commands=200_000,
        seconds=2.0,
        cpu=cpu,
        own_cpu=own_cpu,
        p50=0.001,
        p99=0.002,
        p999=0.003,
        worst=0.004,
    )


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_the_section_between_the_markers_is_replaced() -> None:
    page = replace_section(PAGE, "a", "new")
    assert page == PAGE.replace("\nold\n", "\n\nnew\n\n")
    assert replace_section(page, "a", "newer") == page.replace("new", "newer")


@pytest.mark.parametrize("name", ["b", ""])
def test_a_page_without_the_markers_is_refused(name: str) -> None:
    with pytest.raises(DocsError, match="missing"):
        replace_section(PAGE, name, "new")


def test_a_page_whose_end_marker_comes_first_is_refused() -> None:
    with pytest.raises(DocsError, match="missing"):
        replace_section("<!-- bench a: end --><!-- bench a: begin -->", "a", "new")


def test_the_heading_says_how_to_make_the_table_again() -> None:
    text = heading(["--server", "a b", "--quick"], {"python": "3.11"})
    assert "`python -m tools.bench --server 'a b' --quick`" in text
    assert "python 3.11" in text


def test_ratios_are_the_median_of_those_within_a_round() -> None:
    costs = [(2.0, 1.0), (6.0, 2.0), (4.0, 8.0)]
    samples = []
    for number, (ours, theirs) in enumerate(costs):
        samples += [sample("disque", ours, number), sample("redis", theirs, number)]
    titles, _, row = matrix_table(samples).splitlines()
    found = dict(zip(cells(titles), cells(row), strict=True))
    assert found["command"] == "ADDJOB / LPUSH"
    assert found["CPU ratio"] == "**2.00**"
    assert found["(range)"] == "0.50-3.00"
    assert found["disque CPU s/100k"] == "2.000"
    assert found["redis CPU s/100k"] == "1.000"
    assert found["disque rate/s"] == "100,000"
    assert found["disque p50 / p99 / p999 ms"] == "1.00 / 2.00 / 3.00"


def test_a_rate_that_the_generator_limits_is_marked() -> None:
    samples = [sample("disque", 1.0, own_cpu=1.9), sample("redis", 1.0)]
    titles, _, row = matrix_table(samples).splitlines()
    found = dict(zip(cells(titles), cells(row), strict=True))
    assert found["disque rate/s"] == "100,000+"
    assert found["redis rate/s"] == "100,000"


def test_growth_is_shown_against_the_lowest_level() -> None:
    samples = [sample("disque", 3.0, held=1_000_000), sample("disque", 2.0, held=1_000)]
    text = level_table(samples, lambda s: s.setting.held, "held")
    titles, _, row = text.splitlines()
    found = dict(zip(cells(titles), cells(row), strict=True))
    assert found["command"] == "disque ADDJOB"
    assert found["CPU s/100k, 1,000 held"] == "1.000"
    assert found["CPU ratio, 1,000,000 held"] == "**1.50** (1.50-1.50)"


def test_rest_is_the_median_of_the_rounds() -> None:
    rests = [Rest("disque", 10_000, cpu) for cpu in (0.001, 0.002, 0.009)]
    assert cells(rest_table(rests).splitlines()[-1]) == ["disque", "10,000", "2.0"]


def test_every_client_gets_work_in_whole_batches() -> None:
    plan = Plan(starts=(), work=0.001)
    for pipeline in (1, 16, 64):
        commands = plan.commands(pipeline, 1000)
        assert commands >= 1000 * pipeline
        assert commands % pipeline == 0
