"""Hand-written event logs, audits of them with Spark, and the contents of the tables."""

import json
from pathlib import Path

from pyspark.sql import Row, SparkSession

from disque_spark.audit.result import Result
from disque_spark.audit.rules import Rules
from disque_spark.audit.run import audit
from packages.spark.tests.support.planted_log import NODES, START, Key, about_of


class Lines:
    """A hand-written log.

    Attributes:
        at: time of the next event, ms since the epoch.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.at = START
        self._lines: dict[str, list[str]] = {}
        directory.mkdir(parents=True, exist_ok=True)

    def say(
        self, node: str, event: str, job: str | None = "j", after: int = 10, **more: object
    ) -> None:
        self.at += after
        line = {"time": self.at, "node": node, "event": event, "id": job, "queue": "q", **more}
        kept = {name: value for name, value in line.items() if value is not None}
        self._lines.setdefault(node, []).append(json.dumps(kept) + "\n")

    def add(self, node: str, job: str, **more: object) -> None:
        facts = {"size": 5, "repl": 1, "retry": 30, "ttl": 3600, "delay": 0, **more}
        self.say(node, "added", job, **facts)
        self.say(node, "queued", job, reason="add")

    def stop(self) -> None:
        """Make all nodes log that their logs are complete up to here."""
        for node in NODES:
            self.say(node, "stopped", None, after=0)

    def close(self, number: int = 0) -> None:
        """Write the segments."""
        for node, lines in self._lines.items():
            name = f"events-{node[:8]}-{self.at:013d}-{number}.jsonl"
            (self.directory / name).write_text("".join(lines))
        self._lines = {}


def table(spark: SparkSession, output: Path, name: str) -> list[Row]:
    """The rows of a table, sorted; for jobs, without their part."""
    rows = spark.read.parquet(str(output / "current" / name))
    return sorted(rows.drop("part", "day").collect(), key=str)


def found(spark: SparkSession, output: Path) -> dict[Key, set[str]]:
    kinds: dict[Key, set[str]] = {}
    for row in table(spark, output, "findings"):
        kinds.setdefault((row["kind"], row["reason"] or ""), set()).add(about_of(row))
    return kinds


def audited(spark: SparkSession, log: Lines, output: Path, rules: Rules | None = None) -> Result:
    log.close()
    return audit(spark, [str(log.directory)], output, rules)


def same(spark: SparkSession, one: Path, other: Path) -> None:
    for name in ("jobs", "queue_minutes", "ticks", "findings"):
        assert table(spark, one, name) == table(spark, other, name), name
