"""Alerts and the dashboard name existing metrics and labels, and docs/monitoring.md explains each
alert."""

import re

import pytest

from tests.support.monitoring import (
    CONDITIONS_PAGE,
    PAGE,
    Documented,
    dashboard,
    documented,
    expressions_of_panels,
    panels,
    rules,
)

METRICS = documented()
TARGET = {"job", "instance", "process"}  # from Prometheus, and from several processes
ALERTS = {"alertname", "alertstate"}
NAME = re.compile(r"\b((?:disque|bananaq|process)_\w+|up|ALERTS)\b(?:\{([^}]*)\})?")
SUFFIXES = ("_bucket", "_sum", "_count")
EXPRESSIONS = [(rule["alert"], rule["expr"]) for rule in rules()] + list(expressions_of_panels())


def metric_of(name: str) -> Documented:
    """Return what the documentation says about a series. Raises KeyError if it says nothing."""
    for suffix in SUFFIXES:
        of = METRICS.get(name.removesuffix(suffix))
        if name.endswith(suffix) and of is not None and of.kind == "histogram":
            return of
    found = METRICS[name]
    assert found.kind != "histogram", f"{name} has no samples of its own"
    return found


def labels_of(name: str) -> set[str]:
    if name == "up":
        return TARGET
    if name == "ALERTS":
        return TARGET | ALERTS
    labels = TARGET | metric_of(name).labels
    return labels | {"le"} if name.endswith("_bucket") else labels


@pytest.mark.parametrize(("title", "expression"), EXPRESSIONS)
def test_every_metric_and_label_in_an_expression_is_documented(title: str, expression: str) -> None:
    known: set[str] = set()
    bare = re.sub(r'"[^"]*"', '""', expression)
    groups = r"\b(?:by|on|without|ignoring|group_left|group_right) ?\(([^)]*)\)"
    for name, selector in NAME.findall(re.sub(groups, "", bare)):
        labels = labels_of(name)
        named = set(re.findall(r"(\w+) ?(?:=~|!~|!=|=)", selector))
        assert named <= labels, f"{title}: {name} has no {named - labels}"
        known |= labels
    assert known, f"{title}: no metric in {expression}"
    for group in re.findall(groups, bare):
        assert {label.strip() for label in group.split(",")} <= known, f"{title}: {group}"


@pytest.mark.parametrize(("title", "expression"), EXPRESSIONS)
def test_rates_are_those_of_what_counts(title: str, expression: str) -> None:
    for name in re.findall(r"(?:rate|increase)\((\w+)", expression):
        assert metric_of(name).kind in ("counter", "histogram"), f"{title}: {name}"


def test_each_alert_says_what_it_means_and_the_page_what_to_do() -> None:
    explained = re.findall(
        r"^\| `((?:Disque|Bananaq)\w+)` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE
    )
    explained += re.findall(
        r"\| `(Disque\w+)`[^|]*\|$", CONDITIONS_PAGE.read_text(encoding="utf-8"), re.MULTILINE
    )
    for rule in rules():
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert set(rule["annotations"]) == {"summary", "description"}
    assert sorted(explained) == sorted(rule["alert"] for rule in rules())


def test_annotations_use_labels_that_the_alert_has() -> None:
    for rule in rules():
        used = set(re.findall(r"\$labels\.(\w+)", str(rule["annotations"])))
        kept = re.match(r"(?:sum|max) by \(([^)]*)\)", rule["expr"])
        if kept is not None:
            assert used <= {label.strip() for label in kept[1].split(",")}, rule["alert"]


def test_panels_have_units_explanations_and_places_of_their_own() -> None:
    numbers = [panel["id"] for panel in dashboard()["panels"]]
    assert len(set(numbers)) == len(numbers)
    taken: set[tuple[int, int]] = set()
    for panel in panels():
        assert panel["description"], panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        assert panel["datasource"]["uid"] == "${datasource}"
        assert all(target["datasource"]["uid"] == "${datasource}" for target in panel["targets"])
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert place["x"] + place["w"] <= 24
        assert not cells & taken, panel["title"]
        taken |= cells


def test_the_dashboard_has_its_variables_and_no_others_are_used() -> None:
    board = dashboard()
    variables = {variable["name"]: variable for variable in board["templating"]["list"]}
    assert {"datasource", "instance", "queue"} <= set(variables)
    used = {
        name
        for panel in panels()
        for target in panel["targets"]
        for name in re.findall(r"\$\{?([a-z]\w*)", target["expr"])
    }
    assert used <= set(variables)
    for variable in variables.values():
        if variable["type"] == "query":
            name = re.match(r"label_values\((\w+)(?:\{.*\})?, (\w+)\)", variable["definition"])
            assert name is not None
            assert name[2] in labels_of(name[1])
