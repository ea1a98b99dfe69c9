"""The measurement of clusters: its sums and its tables."""

from xml.etree import ElementTree

from benchmarks.cluster import Beside, apart_plot, apart_table, growth_table, ways_table
from tools.bench.nodes import Result, Usage, Way

WAY = Way("cycle", 3, False, 16, 50)


def result(way: Way, cpu: float, nodes: int = 3, bus_bytes: int | None = 4_000) -> Result:
    """A result: 1000 jobs in 2 seconds."""
    return Result(way, nodes, 0, 0, 1_000, 2.0, 0.1, Usage(cpu, 5_000, bus_bytes))


def cells(table: str) -> list[list[str]]:
    """Return the rows of a table, without the titles."""
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()[2:]]


def test_usage_is_what_came_on_top() -> None:
    assert Usage(3.0, 30, 300).since(Usage(1.0, 10, 100)) == Usage(2.0, 20, 200)
    assert Usage(3.0, 30, None).since(Usage(1.0, 10, 100)).bus_bytes is None


def test_each_way_has_a_row_with_its_ratio_to_redis() -> None:
    sync = [result(WAY, 0.2), result(WAY, 0.3), result(WAY, 0.4)]
    redis = [Beside("cycle", 16, round, 10.0, 1_000.0) for round in range(3)]
    redis += [Beside("add", 16, round, 1.0, 9_000.0) for round in range(3)]
    (row,) = cells(ways_table(sync, redis))
    assert row[:3] == ["cycle", "with all copies", "16"]
    assert row[3:] == ["**30.00**", "20.00-40.00", "3.0", "500", "0.50", "5.0", "4"]


def test_growth_is_relative_to_the_lowest_level() -> None:
    found = [result(WAY, 0.2, nodes=1, bus_bytes=None), result(WAY, 0.5, nodes=9)]
    one, nine = cells(growth_table(found, lambda r: r.nodes, "nodes"))
    assert one[:4] == ["cycle", "16", "1", "3"]
    assert [one[6], nine[6]] == ["1.00", "2.50"]
    assert one[9] == "not counted"


def test_one_cluster_stands_beside_clusters_of_three() -> None:
    pairs = [(result(WAY, 0.2, nodes=9), result(WAY, 0.2 * by, nodes=9)) for by in (1.0, 1.25, 2.0)]
    (row,) = cells(apart_table(pairs))
    assert row[:3] == ["cycle", "16", "9"]
    assert row[7:9] == ["**1.25**", "1.00-2.00"]
    assert row[9:] == ["5.0", "5.0"]


def test_the_plot_has_a_line_for_each_kind_of_cluster() -> None:
    pairs = [
        (result(WAY, 0.2, nodes=nodes), result(WAY, 0.2 * by, nodes=nodes))
        for nodes, by in ((3, 1.0), (9, 1.5))
    ]
    drawn = ElementTree.fromstring(apart_plot(pairs))
    one, threes = drawn.findall("{http://www.w3.org/2000/svg}path")
    heights = [
        [float(p.split()[1]) for p in path.attrib["d"][1:].split("L")] for path in (one, threes)
    ]
    assert heights[0][0] == heights[1][0] == heights[1][1]
    assert heights[0][1] < heights[0][0]  # what costs more is further up
