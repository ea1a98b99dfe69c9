"""Alert rules and dashboard of ``config/``, and the tables of metrics in docs/monitoring.md."""

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import yaml

from tests.support import ROOT

RULES = ROOT / "config" / "prometheus-alerts.yml"
DASHBOARD = ROOT / "config" / "grafana-dashboard.json"
PAGE = ROOT / "docs" / "monitoring.md"


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
    """Those that show something."""
    return [panel for panel in dashboard()["panels"] if panel["type"] != "row"]


def expressions_of_panels() -> Iterator[tuple[str, str]]:
    """Title and expression, as Prometheus gets it."""
    for panel in panels():
        for target in panel["targets"]:
            yield panel["title"], target["expr"].replace("$__rate_interval", "1m")


def documented() -> dict[str, Documented]:
    """The rows of all tables of metrics, by name."""
    text = PAGE.read_text(encoding="utf-8")
    found = {}
    rows = r"^\| `(\w+)` \| (gauge|counter|histogram) \|([^|]*)\|"
    for name, kind, labels in re.findall(rows, text, re.MULTILINE):
        found[name] = Documented(kind, frozenset(re.findall(r"`(\w+)`", labels)))
    # What bananaq has in common with a node stands in the table of the node.
    of_both = text.partition("<!-- node metrics -->")[2].partition("`disque_jobs`")[0]
    for name in re.findall(r"^\| `disque_(\w+)` \|", of_both, re.MULTILINE):
        found[f"bananaq_{name}"] = found[f"disque_{name}"]
    for name in re.findall(r"`(process_\w+)`", text):
        found[name] = Documented("counter" if name.endswith("_total") else "gauge", frozenset())
    return found
