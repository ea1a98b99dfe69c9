"""Tables of a live cluster by name in SQL."""

from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import SparkSession

from disque_spark import views
from disque_spark.options import OptionError
from tests.support.harness import LiveNode

pytestmark = [pytest.mark.live, pytest.mark.timeout(300)]


@pytest.fixture
def session(another_session: SparkSession) -> Iterator[SparkSession]:
    other = another_session
    # As in the session of the tests: otherwise, it starts new Python workers.
    other.conf.set("spark.sql.artifact.isolation.enabled", "false")
    yield other
    for schema in ("disque", "elsewhere"):
        other.sql(f"DROP DATABASE IF EXISTS {schema} CASCADE")


def test_the_queues_of_a_cluster_are_a_name_in_sql(session: SparkSession, node: LiveNode) -> None:
    nodes = f"127.0.0.1:{node.port}"
    assert views(session, nodes) == ["disque.jobs", "disque.queues"]
    lengths = "SELECT queue, len FROM disque.queues WHERE len > 0"
    assert session.sql(lengths).collect() == []
    node.ask("ADDJOB", "q", "body", 0)
    assert session.sql(lengths).collect() == [("q", 1)]  # each SELECT asks the nodes
    node.ask("ADDJOB", "q", "body", 0)
    assert session.sql(lengths).collect() == [("q", 2)]
    assert session.table("disque.jobs").count() == 2
    assert session.sql("SELECT count(*) FROM disque.jobs JOIN disque.queues q USING (queue)").head()
    views(session, [nodes])  # again
    assert session.sql(lengths).collect() == [("q", 2)]


def test_options_of_the_tables_are_kept_as_they_are(session: SparkSession, node: LiveNode) -> None:
    node.ask("ADDJOB", "q", "body", 0)
    views(session, f"127.0.0.1:{node.port}", "elsewhere", discover=False, batchSize=1)
    assert session.sql("SELECT queue FROM elsewhere.queues").collect() == [("q",)]
    odd = """it's "odd"\\ and ` more"""
    views(session, f"127.0.0.1:{node.port}", "elsewhere", username="somebody", password=odd)
    with pytest.raises(PySparkException, match="WRONGPASS"):
        session.sql("SELECT * FROM elsewhere.queues").collect()


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"nodes": ":7711"}, "nodes"),
        ({"schema": "a.b"}, "schema"),
        ({"passwort": "x"}, "did you mean password"),
        ({"state": "queued"}, "state: no such option of both tables"),
        ({"pushdown": True}, "pushdown"),
    ],
)
def test_invalid_options_are_refused(
    session: SparkSession, arguments: dict[str, Any], reason: str
) -> None:
    with pytest.raises(OptionError, match=reason):
        views(session, **{"nodes": "127.0.0.1:7711", **arguments})
    with pytest.raises(AnalysisException):
        session.table("disque.jobs")
