"""What Prometheus gets from real streams."""

from collections.abc import Iterator
from pathlib import Path
from urllib.request import Request, urlopen

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from disque_spark import pipeline
from disque_spark.archive import Archive
from disque_spark.metrics import serve_metrics
from tests.support.harness import HANG_SECONDS, NodeFactory, free_port, wait_until

pytestmark = [pytest.mark.live, pytest.mark.timeout(300)]


class Scraped:
    """The metrics that are served on a port."""

    def __init__(self, port: int) -> None:
        self._request = Request(
            f"http://127.0.0.1:{port}/metrics", headers={"Accept": "application/openmetrics-text"}
        )

    def __call__(self, name: str, **labels: str) -> float | None:
        with urlopen(self._request, timeout=HANG_SECONDS) as reply:
            families = text_string_to_metric_families(reply.read().decode())
        for family in families:
            for sample in family.samples:
                if sample.name == f"disque_spark_{name}" and sample.labels == labels:
                    return sample.value
        return None


@pytest.fixture
def scraped(spark: SparkSession) -> Iterator[Scraped]:
    """The metrics of the session of the tests."""
    served = serve_metrics(spark, port=0)
    yield Scraped(served.port)
    served.close()


def test_any_query_reports_its_batches_and_its_failure(
    spark: SparkSession, disque_server: NodeFactory, tmp_path: Path, scraped: Scraped
) -> None:
    node = disque_server()
    jobs = (
        spark.readStream.format("disque")
        .option("nodes", f"127.0.0.1:{node.port}")
        .option("queue", "q")
        .option("leaseQueue", "test")
        .load()
    )

    def take(batch: DataFrame, number: int) -> None:
        if any(bytes(row["body"]) == b"broken" for row in batch.collect()):
            raise ArithmeticError

    query = jobs.writeStream.queryName("mine").foreachBatch(take)
    running = query.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        wait_until(lambda: bool(scraped("query_state", query="mine", state="running")))
        for body in ("one", "two"):
            node.ask("ADDJOB", "q", body, 0, "RETRY", 600)
        wait_until(lambda: scraped("input_rows_total", query="mine") == 2)
        assert (scraped("batches_total", query="mine") or 0) >= 1
        assert (scraped("batch_step_seconds_total", query="mine", step="addBatch") or 0) > 0
        assert (scraped("source_offset", query="mine", source="0") or 0) >= 1
        assert scraped("failures_total", query="mine") == 0
        node.ask("ADDJOB", "q", "broken", 0, "RETRY", 600)
        with pytest.raises(StreamingQueryException):
            running.awaitTermination(60)
        wait_until(lambda: bool(scraped("query_state", query="mine", state="failed")))
        assert scraped("failures_total", query="mine") == 1
    finally:
        running.stop()


def test_an_archive_serves_metrics_as_long_as_it_runs(
    spark: SparkSession,
    disque_server: NodeFactory,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    node, port = disque_server(), free_port()
    for number in range(3):
        node.ask("ADDJOB", "q", f"{number}", 0, "RETRY", 600)
    words = ["--nodes", f"127.0.0.1:{node.port}", "--queue", "q", "--output", f"{tmp_path / 't'}"]
    arguments = ["archive", *words, "--metrics", f"{port}", "--available-now"]
    acknowledge = Archive.acknowledge
    scraped = Scraped(port)

    def look(archive: Archive) -> None:
        wait_until(lambda: bool(scraped("query_state", query="archive q", state="stopped")))
        assert scraped("input_rows_total", query="archive q") == 3
        acknowledge(archive)

    monkeypatch.setattr(Archive, "acknowledge", look)
    assert pipeline.main(arguments, lambda options: spark) == 0
    assert "3 jobs archived" in capsys.readouterr().out
    with pytest.raises(OSError, match="refused"):
        scraped("input_rows_total", query="archive q")


def test_an_archive_reports_at_once_that_it_cannot_serve_metrics(
    disque_server: NodeFactory, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    node = disque_server()
    words = ["--nodes", f"127.0.0.1:{node.port}", "--queue", "q", "--output", f"{tmp_path / 't'}"]
    assert pipeline.main(["archive", *words, "--metrics", f"127.0.0.1:{node.port}"]) == 2
    assert f"--metrics 127.0.0.1:{node.port}: " in capsys.readouterr().err
