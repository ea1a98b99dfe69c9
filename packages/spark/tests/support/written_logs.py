"""Hand-written event logs, audits of them in this process, and the contents of the tables."""

import json
from pathlib import Path
from typing import Any

from disque_spark.audit.engine import LocalEngine
from disque_spark.audit.result import Result
from disque_spark.audit.rules import Rules
from disque_spark.audit.run import audit
from disque_spark.audit.tables import COLUMNS
from disque_spark.files import location
from disque_spark.parquet import rows_of
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
        self.say(node, "added", job, 10, **facts)
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


class Row(dict[str, Any]):
    """A row of a table, with its columns as attributes as well."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


def read(output: Path, name: str) -> list[Row]:
    """The rows of a table, with the column ``day``, from the links in ``current``."""
    files = sorted((output / "current" / name).glob("**/*.parquet"))
    return [
        Row(row)
        for file in files
        for batch in rows_of(location(file), COLUMNS[name])
        for row in batch.to_pylist()
    ]


def table(output: Path, name: str) -> list[Row]:
    """The rows of a table without that column, sorted."""
    rows = [Row({key: row[key] for key in row if key != "day"}) for row in read(output, name)]
    return sorted(rows, key=str)


def found(output: Path) -> dict[Key, set[str]]:
    kinds: dict[Key, set[str]] = {}
    for row in table(output, "findings"):
        kinds.setdefault((row["kind"], row["reason"] or ""), set()).add(about_of(row))
    return kinds


def audited(log: Lines, output: Path, rules: Rules | None = None) -> Result:
    log.close()
    return audit(LocalEngine(2), [str(log.directory)], output, rules)


def same(one: Path, other: Path) -> None:
    for name in ("jobs", "queue_minutes", "ticks", "findings"):
        assert table(one, name) == table(other, name), name
