"""Reads the metrics of a process like Prometheus, and their documentation in docs/monitoring.md."""

import re
import shutil
import subprocess
import urllib.request
from collections.abc import Iterable

from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as read_openmetrics,
)
from prometheus_client.parser import text_string_to_metric_families as read_text

from tests.support import ROOT
from tests.support.harness import HANG_SECONDS

OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
Values = dict[tuple[str, ...], float]
Row = tuple[str, tuple[str, ...]]
"""Type and labels of a metric."""


def page(port: int, accept: str = "", host: str = "127.0.0.1") -> str:
    """The page with all metrics."""
    request = urllib.request.Request(f"http://{host}:{port}/metrics", headers={"Accept": accept})
    with urllib.request.urlopen(request, timeout=HANG_SECONDS) as answer:
        assert answer.status == 200
        return str(answer.read().decode())


def families(port: int, accept: str = "", host: str = "127.0.0.1") -> list[Metric]:
    """All metrics, as prometheus-client's parsers read them."""
    text = page(port, accept, host)
    return list((read_openmetrics if accept else read_text)(text))


def values(port: int, name: str) -> Values:
    """The values of a metric, by the values of its labels."""
    return {
        tuple(sample.labels.values()): sample.value
        for family in families(port)
        for sample in family.samples
        if sample.name == name
    }


def rows(found: Iterable[Metric]) -> dict[str, Row]:
    """Type and labels of all metrics except those for any process, by name."""
    told = {}
    for family in found:
        name = f"{family.name}_total" if family.type == "counter" else family.name
        if not name.startswith("process_"):
            labels = {label for sample in family.samples for label in sample.labels} - {"le"}
            told[name] = (family.type, tuple(sorted(labels)))
    return told


def documented(program: str) -> dict[str, Row]:
    """The metrics of ``program`` (node or bananaq) in docs/monitoring.md."""
    text = (ROOT / "docs" / "monitoring.md").read_text(encoding="utf-8")
    part = text.partition(f"<!-- {program} metrics -->")[2].partition("\n## ")[0]
    found = {}
    for name, kind, labels in re.findall(r"^\| `(\w+)` \| (\w+) \| (.*?) ?\|", part, re.MULTILINE):
        found[name] = (kind, tuple(sorted(re.findall(r"`(\w+)`", labels))))
    assert found
    return found


def promtool(text: str) -> str:
    """promtool's complaints about a page; empty if none, or if it is not installed."""
    if shutil.which("promtool") is None:
        return ""
    check = ["promtool", "check", "metrics"]
    done = subprocess.run(check, input=text.encode(), capture_output=True, timeout=HANG_SECONDS)
    return "" if done.returncode == 0 else (done.stdout + done.stderr).decode()
