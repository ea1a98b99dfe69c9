"""The chart for Kubernetes, rendered and checked by Helm's own engine."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from disque_trio.config import Config, load_settings
from disque_trio.version import VERSION
from tests.support import ROOT

helm = pytest.importorskip("helm_python")

CHART = ROOT / "config" / "helm" / "disque"


def rendered(**values: Any) -> dict[tuple[str, str], dict[str, Any]]:
    """Return the manifests of a release ``jobs``, by kind and name."""
    with helm.Chart.load(str(CHART)) as chart:
        files = chart.render(values=values, name="jobs")
    found = {}
    for text in files.values():
        for manifest in yaml.safe_load_all(text):
            if manifest:
                found[manifest["kind"], manifest["metadata"]["name"]] = manifest
    return found


def container(**values: Any) -> dict[str, Any]:
    spec = rendered(**values)["StatefulSet", "jobs"]["spec"]["template"]["spec"]
    (only,) = spec["containers"]
    assert isinstance(only, dict)
    return only


def test_helm_finds_nothing_wrong() -> None:
    problems = [found for found in helm.lint(str(CHART))["messages"] if found["severity"] > 1]
    assert problems == []


def test_the_chart_is_of_this_version() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == values["image"]["tag"] == VERSION


def test_without_values_there_are_nodes_with_services_and_no_scaling() -> None:
    assert {kind for kind, _ in rendered()} == {
        "ConfigMap",
        "PodDisruptionBudget",
        "Service",
        "StatefulSet",
    }


def test_each_node_meets_all_by_the_names_that_the_service_gives() -> None:
    command = container(nodes=2)["lifecycle"]["postStart"]["exec"]["command"]
    assert command == ["disque-container", "meet", "jobs-0.jobs-nodes", "jobs-1.jobs-nodes"]
    service = rendered()["Service", "jobs-nodes"]["spec"]
    assert service["clusterIP"] == "None"
    assert service["publishNotReadyAddresses"]


def test_selectors_and_ports_fit() -> None:
    found = rendered()
    labels = found["StatefulSet", "jobs"]["spec"]["template"]["metadata"]["labels"]
    assert found["StatefulSet", "jobs"]["spec"]["selector"]["matchLabels"] == labels
    assert found["PodDisruptionBudget", "jobs"]["spec"]["selector"]["matchLabels"] == labels
    names = {port["name"]: port["containerPort"] for port in container()["ports"]}
    assert names["bus"] == names["disque"] + 10000
    for service in ("jobs", "jobs-nodes"):
        assert found["Service", service]["spec"]["selector"] == labels
        for port in found["Service", service]["spec"]["ports"]:
            assert names[port["name"]] == port["port"]


def test_nothing_runs_as_root_and_nothing_secret_is_an_argument() -> None:
    pod = rendered()["StatefulSet", "jobs"]["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"]
    assert container()["securityContext"]["readOnlyRootFilesystem"]
    assert "args" not in container()
    image = (ROOT / "config" / "container" / "Containerfile").read_text()
    (user,) = re.findall(r"^USER (\d+):", image, re.MULTILINE)
    assert pod["securityContext"]["runAsUser"] == int(user)


def test_openshift_may_choose_the_user() -> None:
    pod = rendered(user=None)["StatefulSet", "jobs"]["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"]
    assert not {"runAsUser", "runAsGroup", "fsGroup"} & pod["securityContext"].keys()


def test_services_put_no_variables_into_the_nodes() -> None:
    """DISQUE_PORT, from a service ``disque``, would set the port of the node."""
    pod = rendered()["StatefulSet", "jobs"]["spec"]["template"]["spec"]
    assert pod["enableServiceLinks"] is False


def test_settings_are_what_a_node_takes(tmp_path: Path) -> None:
    text = rendered(settings="maxmemory 2gb\nloglevel verbose\n")["ConfigMap", "jobs"]["data"]
    file = tmp_path / "disque.conf"
    file.write_text(text["disque.conf"])
    config = load_settings(Config, str(file))
    assert (config.metrics_port, config.maxmemory) == (9711, 2 * 1024**3)


def test_workers_scale_by_what_prometheus_says_of_their_queue() -> None:
    found = rendered(keda={"enabled": True, "deployment": "sms", "queue": "sms"})
    spec = found["ScaledObject", "sms"]["spec"]
    (trigger,) = spec["triggers"]
    assert trigger["type"] == "prometheus"
    assert 'queue="sms"' in trigger["metadata"]["query"]
    assert "disque_queue_jobs" in trigger["metadata"]["query"]
    assert trigger["metadata"]["threshold"] == "16"
    assert spec["scaleTargetRef"]["name"] == "sms"
