"""The output about two tenants of one queue."""

from xml.etree import ElementTree

from benchmarks.tenants import AGE, FAIR, Finding, waits_table
from benchmarks.tenants_load import HEAD, NOISY, QUIET, Result, Waited, bodies_of
from benchmarks.tenants_plot import plot

SLOW = [Waited(-0.5, 0.001, 0), Waited(0.0, 20.0, 900), Waited(10.0, 10.0, 400)]
SOON = [Waited(-0.2, 0.002, 0), Waited(0.0, 0.004, 1), Waited(10.0, 0.002, 2)]
FOUND = [Finding(AGE, Result(SLOW, 0.5, 20.5)), Finding(FAIR, Result(SOON, 0.6, 21.0))]


def test_jobs_from_before_the_noisy_tenant_are_told_by_themselves() -> None:
    rows = waits_table(FOUND).splitlines()[2:]
    age = "| 2 | 10,000.0 / 20,000.0 / 20,000.0 / 20,000.0 | 400 / 900 | 1.0 / 1.0 | 20.5 |"
    assert rows[0] == f"| {AGE} {age}"
    assert rows[1] == f"| {FAIR} | 2 | 2.0 / 4.0 / 4.0 / 4.0 | 1 / 2 | 2.0 / 2.0 | 21.0 |"


def test_the_table_does_without_jobs_from_before() -> None:
    alone = [Finding(AGE, Result(SLOW[1:], 0.5, 20.5))]
    assert waits_table(alone).endswith("| 400 / 900 |  | 20.5 |")


def test_the_picture_has_a_dot_for_each_job_and_a_line_in_the_legend_for_each_way() -> None:
    lines = [(one.way, one.result.quiet) for one in FOUND]
    root = ElementTree.fromstring(plot(lines, 1000))
    paths = [element.get("d", "") for element in root.iter() if element.tag.endswith("}path")]
    assert [path.count("M") for path in paths] == [len(SLOW), len(SOON)]
    texts = [element.text for element in root.iter() if element.tag.endswith("}text")]
    assert {AGE, FAIR, "0 s", "10 s", "1 ms"} <= set(texts)


def test_the_picture_of_a_single_job_is_one_as_well() -> None:
    root = ElementTree.fromstring(plot([(AGE, SLOW[1:2])], 1000))
    assert root.tag.endswith("}svg")


def test_bodies_tell_whose_they_are_and_which() -> None:
    for tenant in (QUIET, NOISY):
        bodies = bodies_of(tenant, 20)
        assert len(next(bodies)) == 20
        body = next(bodies)
        assert body.startswith(tenant)
        assert int(body[len(tenant) : HEAD]) == 1
