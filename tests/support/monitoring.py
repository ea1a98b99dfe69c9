"""Alert rules and dashboard of ``config/``, and the tables of metrics in docs/monitoring.md."""

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import yaml
from prometheus_client.metrics_core import Metric

from tests.support import ROOT

RULES = ROOT / "config" / "prometheus-alerts.yml"
DASHBOARD = ROOT / "config" / "grafana-dashboard.json"
PAGE = ROOT / "docs" / "monitoring.md"
CONDITIONS_PAGE = ROOT / "docs" / "conditions.md"


class Documented(NamedTuple):
    """A row of a table. kind: of the metric. labels: their names."""

    kind: str
    labels: frozenset[str]


def rules() -> list[dict[str, Any]]:
    """All alerts."""
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def dashboard() -> dict[str, Any]:
    parsed: dict[str, Any] = json.loads(DASHBOARD.read_text())
    return parsed


def panels() -> list[dict[str, Any]]:
    """The panels that show data."""
    return [panel for panel in dashboard()["panels"] if panel["type"] != "row"]


def expressions_of_panels() -> Iterator[tuple[str, str]]:
    """Title and expression, as sent to Prometheus."""
    for panel in panels():
        for target in panel["targets"]:
            yield panel["title"], target["expr"].replace("$__rate_interval", "1m")


ROW = re.compile(r"^\| `(\w+)` \| (gauge|counter|histogram) \|([^|]*)\|", re.MULTILINE)


def rows(text: str) -> dict[str, Documented]:
    """The rows of tables of metrics in ``text``, by name."""
    return {
        name: Documented(kind, frozenset(re.findall(r"`(\w+)`", labels)))
        for name, kind, labels in ROW.findall(text)
    }


def table(of: str) -> dict[str, Documented]:
    """The table of metrics with this mark."""
    return rows(
        PAGE.read_text(encoding="utf-8").partition(f"<!-- {of} metrics -->")[2].partition("\n\n")[0]
    )


def documented() -> dict[str, Documented]:
    """The rows of all tables of metrics, by name."""
    text = PAGE.read_text(encoding="utf-8")
    found = rows(text)
    # The metrics that bananaq shares with a node are in the node's table.
    of_both = text.partition("<!-- node metrics -->")[2].partition("`disque_jobs`")[0]
    for name, row in rows(of_both).items():
        found[name.replace("disque_", "bananaq_", 1)] = row
    for name in re.findall(r"`(process_\w+)`", text):
        found[name] = Documented("counter" if name.endswith("_total") else "gauge", frozenset())
    return found


def exported(families: Iterable[Metric]) -> dict[str, Documented]:
    """The exported metrics, in the form of the tables; each family has a sample."""
    return {
        f"{family.name}_total" if family.type == "counter" else family.name: Documented(
            family.type,
            frozenset(name for sample in family.samples for name in sample.labels) - {"le"},
        )
        for family in families
    }
