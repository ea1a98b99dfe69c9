"""Options that a source does not have are refused, and its page lists all that it has."""

import re

import pytest
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import StructType

from disque_spark.datasources.aof import AOF_OPTIONS
from disque_spark.datasources.queues import READ_OPTIONS, DisqueSource
from disque_spark.datasources.tables import JOBS_OPTIONS, QUEUES_OPTIONS
from disque_spark.events import EVENTS_OPTIONS
from disque_spark.options import OptionError, check_names
from disque_spark.sink.writer import WRITE_OPTIONS
from packages.spark.tests.support import HOME

SECTIONS = {
    "The tables of a live cluster": (*JOBS_OPTIONS, *QUEUES_OPTIONS),
    "Append-only files": AOF_OPTIONS,
    "Event logs": EVENTS_OPTIONS,
    "Reading queues: `disque`": READ_OPTIONS,
    "Writing jobs: `disque`": WRITE_OPTIONS,
}
NAMES = ("spark.md", "spark-queues.md")
PAGE = "".join((HOME / "docs" / name).read_text("utf-8") for name in NAMES)
# What these sections' tables contain besides options.
ARGUMENTS = {"include_open"}


def section(text: str, title: str) -> str:
    """Return a section of a page, with its subsections."""
    found = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    assert found is not None, title
    return found[1]


def tables(text: str) -> list[str]:
    """Return the tables of options."""
    return re.findall(r"^\| (?:option|Option|argument, option) \|.*\n(?:\|.*\n)+", text, re.M)


@pytest.mark.parametrize("title", SECTIONS)
def test_the_page_about_spark_has_all_options(title: str) -> None:
    text = section(PAGE, title)
    tls = set(re.findall(r"`(tls\w*)`", PAGE))
    for name in SECTIONS[title]:
        assert f"`{name}`" in text or name in tls, name


@pytest.mark.parametrize("title", SECTIONS)
def test_the_page_about_spark_has_no_other_options(title: str) -> None:
    text = section(PAGE, title)
    rows = [line for table in tables(text) for line in table.splitlines()[2:]]
    for row in rows:
        names = re.findall(r"`([^`]+)`", row.split("|")[1])
        assert set(names) <= {*SECTIONS[title], *ARGUMENTS}, row
    assert rows


def refused(known: tuple[str, ...], **options: str) -> str:
    with pytest.raises(OptionError) as error:
        check_names(CaseInsensitiveDict(options), "disque", known)
    return str(error.value)


def test_the_nearest_option_is_named() -> None:
    text = "maxjobperbatch: no such option of disque; did you mean maxJobsPerBatch?"
    assert refused(READ_OPTIONS, maxJobPerBatch="5") == text
    assert "did you mean leaseQueue?" in refused(READ_OPTIONS, leasequue="x")
    assert "did you mean queue?" in refused(WRITE_OPTIONS, Queu="q")


def test_if_no_option_is_near_all_are_named() -> None:
    text = refused(AOF_OPTIONS, xyz="1")
    assert text == "xyz: no such option of disque; it has batchSize, damaged, path, records"


def test_upper_and_lower_case_are_the_same() -> None:
    check_names(CaseInsensitiveDict({"MAXJOBSPERBATCH": "5"}), "disque", READ_OPTIONS)
    check_names({"MAXJOBSPERBATCH": "5"}, "disque", READ_OPTIONS)


@pytest.mark.parametrize(
    "name",
    ["path", "checkpointLocation", "queryName", "provider", "owner", "option.nodes"],
)
def test_options_that_spark_adds_are_accepted(name: str) -> None:
    check_names(CaseInsensitiveDict({name: "x"}), "disque", READ_OPTIONS)


def test_an_option_for_reading_is_refused_for_writing() -> None:
    source = DisqueSource(CaseInsensitiveDict({"queue": "q", "retry": "5"}))
    with pytest.raises(OptionError, match="retry: no such option of disque when it reads"):
        source.schema()
    source = DisqueSource(CaseInsensitiveDict({"queue": "q", "leaseQueue": "x"}))
    with pytest.raises(OptionError, match=r"leaseQueue: .* when it writes"):
        source.writer(None, False)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("partitionsPerNode", "1000000000000"),
        ("minPartitions", "100001"),
        ("heartbeat", "9" * 30),
        ("timeout", "9" * 5000),
        ("idleWait", "-1"),
        ("fetch", "٣"),
        ("maxBytesPerBatch", str(2**63)),
    ],
)
def test_numbers_that_would_break_what_uses_them_are_refused(name: str, value: str) -> None:
    options = CaseInsensitiveDict({"queue": "q", "leaseQueue": "x", name: value})
    with pytest.raises(OptionError, match=f"{name}: expected (a number|a period|at most)"):
        DisqueSource(options).streamReader(StructType())
