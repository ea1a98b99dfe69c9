"""Each value of the chart changes what is rendered, which the API server takes; and there are no
values but those that the chart knows."""

import json
from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any

import pytest
import yaml

pytest.importorskip("helm_python")
pytest.importorskip("kubernetes_validate")

import helm_python as helm

from tests.support.helm import ALL, CHART, Rendered, check, parsed

SCHEMA = json.loads((CHART / "values.schema.json").read_text())
POD = "pod.*"  # tested for each kind of pod in test_helm.py
POLICY = {"podSelector": {"matchLabels": {"app": "shop"}}}
# For each value, another one than that of ALL; "" are all of what is below it.
OTHERS: dict[str, Any] = {
    "image.repository": "registry.example.com/disque",
    "image.tag": "0.2.1",
    "image.pullPolicy": "Always",
    "imagePullSecrets": ["pull"],
    "address": "elsewhere:7711",
    "nodes": 5,
    "secret": "other",
    "user": 1000,
    "settings": "maxmemory 1gb\n",
    "storage.size": "50Gi",
    "storage.className": "fast",
    "storage.whenScaled": "Delete",
    "storage.whenDeleted": "Delete",
    "resources": {"requests": {"cpu": 2}},
    "scaleDown.seconds": 3600,
    "stopSeconds": 120,
    "tls.enabled": False,
    "tls.secret": "mine",
    "tls.serverName": "disque.example.com",
    "tls.clients": "optional",
    "tls.certManager.enabled": False,
    "tls.certManager.issuer": "other",
    "tls.certManager.issuerKind": "ClusterIssuer",
    "tls.certManager.duration": "48h",
    "tls.certManager.renewBefore": "24h",
    "service.type": "LoadBalancer",
    "service.annotations": {"note": "x"},
    "serviceAccount.create": False,
    "serviceAccount.name": "other",
    "serviceAccount.annotations": {"note": "x"},
    "networkPolicy.enabled": False,
    "networkPolicy.clients": [POLICY],
    "networkPolicy.monitoring": [POLICY],
    "pod": {"nodeSelector": {"disk": "ssd"}},
    "monitoring.job": "disque-eu",
    "monitoring.serviceMonitor.enabled": False,
    "monitoring.serviceMonitor.interval": "30s",
    "monitoring.serviceMonitor.labels": {"release": "prometheus"},
    "monitoring.rules.enabled": False,
    "monitoring.rules.labels": {"release": "prometheus"},
    "monitoring.dashboard.enabled": False,
    "monitoring.dashboard.labels": {"grafana": "yes"},
    "console.enabled": False,
    "console.acl": None,  # below, with users
    "console.users": "people",
    "console.prefix": "/disque",
    "console.trustedProxy": "10.0.0.1",
    "console.args": ["--log-level=verbose"],
    "console.storage.size": "2Gi",
    "console.storage.className": "fast",
    "console.service.type": "NodePort",
    "console.service.annotations": {"note": "x"},
    "console.ingress.enabled": False,
    "console.ingress.className": "nginx",
    "console.ingress.host": "other.example.com",
    "console.ingress.tlsSecret": "",
    "console.ingress.annotations": {"note": "x"},
    "console.resources": {"limits": {"memory": "1Gi"}},
    "console.pod": {"nodeSelector": {"disk": "ssd"}},
    "workers.mail.image": "shop:8",
    "workers.mail.app": "shop:app",
    "workers.mail.queues": ["mail"],
    "workers.mail.processes": "4",
    "workers.mail.concurrency": 2,
    "workers.mail.grace": 60,
    "workers.mail.replicas": None,  # below, without autoscale
    "workers.mail.autoscale.min": 0,
    "workers.mail.autoscale.max": 30,
    "workers.mail.autoscale.jobsPerWorker": 7,
    "workers.mail.autoscale.prometheus": "https://prometheus",
    "workers.mail.resources": {"limits": {"memory": "1Gi"}},
    "workers.mail.args": ["--strict"],
    "workers.mail.urlSecret": "mailer",
    "workers.mail.pod": {"nodeSelector": {"disk": "ssd"}},
    "archive.enabled": None,  # in test_helm.py, without compact
    "archive.image": "archive:2",
    "archive.queues": ["log", "audit"],
    "archive.output": "s3a://bucket/table",
    "archive.args": ["--seconds=60"],
    "archive.storage.size": "90Gi",
    "archive.storage.className": "fast",
    "archive.resources": {"limits": {"memory": "8Gi"}},
    "archive.pod": {"nodeSelector": {"disk": "ssd"}},
    "compact.enabled": False,
    "compact.schedule": "0 0 * * *",
    "compact.args": ["--keep-days=90"],
    "compact.resources": {"limits": {"memory": "8Gi"}},
    "compact.pod": {"nodeSelector": {"disk": "ssd"}},
    "events.claim": "other",
    "audit.enabled": False,
    "audit.image": "audit:2",
    "audit.schedule": "0 * * * *",
    "audit.logs": ["s3a://bucket/events"],
    "audit.output": "s3a://bucket/audit",
    "audit.args": ["--check"],
    "audit.storage.size": "",
    "audit.storage.className": "fast",
    "audit.resources": {"limits": {"memory": "8Gi"}},
    "audit.pod": {"nodeSelector": {"disk": "ssd"}},
    "watch.enabled": False,
    "watch.image": "audit:2",
    "watch.logs": ["s3a://bucket/events"],
    "watch.output": "s3a://bucket/watch",
    "watch.webhook": "https://hooks.example.com/jobs",
    "watch.queue": "findings",
    "watch.args": ["--every=1m"],
    "watch.storage.size": "",
    "watch.storage.className": "fast",
    "watch.resources": {"limits": {"memory": "8Gi"}},
    "watch.pod": {"nodeSelector": {"disk": "ssd"}},
    "backup.enabled": False,
    "backup.schedule": "0 * * * *",
    "backup.claim": "other",
    "backup.keep": 30,
    "backup.resources": {"limits": {"memory": "1Gi"}},
    "backup.pod": {"nodeSelector": {"disk": "ssd"}},
    "keda.enabled": False,
    "keda.deployment": "sms-worker",
    "keda.queue": "sms",
    "keda.prometheus": "https://prometheus",
    "keda.jobsPerWorker": 7,
    "keda.min": 1,
    "keda.max": 30,
}


def with_value(values: Mapping[str, Any], path: str, value: Any) -> dict[str, Any]:
    changed: dict[str, Any] = deepcopy(dict(values))
    place = changed
    *above, last = path.split(".")
    for name in above:
        place = place.setdefault(name, {})
    place[last] = value
    return changed


def leaves(schema: Mapping[str, Any], path: str = "") -> Iterator[str]:
    """The names of all values, those of workers with the name ``mail``."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        if name not in ("pod", "resources"):
            yield from leaves(SCHEMA["$defs"][name], path)
            return
    elif schema.get("additionalProperties") == {"$ref": "#/$defs/worker"}:
        yield from leaves(SCHEMA["$defs"]["worker"], f"{path}mail.")
        return
    elif "properties" in schema:
        for name, below in schema["properties"].items():
            if name != "global":
                yield from leaves(below, f"{path}{name}.")
        return
    yield path.removesuffix(".")


def test_each_value_is_tried() -> None:
    assert sorted(leaves(SCHEMA)) == sorted(OTHERS)


def test_each_value_has_a_default_that_the_schema_takes() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    for path in leaves(SCHEMA):
        place = values
        if not path.startswith("workers."):
            for name in path.split("."):
                place = place[name]


@pytest.fixture(scope="module")
def usual() -> dict[str, str]:
    return Rendered(ALL).files


@pytest.mark.parametrize("path", [path for path, value in OTHERS.items() if value is not None])
def test_a_value_changes_what_is_rendered(path: str, usual: dict[str, str]) -> None:
    base = with_value(ALL, "console.acl", False) if path == "console.users" else ALL
    files = Rendered(with_value(base, path, OTHERS[path])).files
    changed = [text for name, text in files.items() if text != usual[name]]
    assert changed
    for text in changed:
        for manifest in parsed(text):
            check(manifest)


def test_a_number_of_workers_counts_if_nothing_else_scales_them() -> None:
    values = deepcopy(ALL)
    del values["workers"]["mail"]["autoscale"]
    values["workers"]["mail"]["replicas"] = 4
    assert Rendered(values)["Deployment", "jobs-mail"]["spec"]["replicas"] == 4


@pytest.mark.parametrize(
    ("values", "place"),
    [
        ({"node": 5}, "node"),
        ({"image": {"tga": "1"}}, "tga"),
        ({"tls": {"certManager": {"issuers": "ca"}}}, "issuers"),
        ({"workers": {"mail": {"image": "shop:1", "app": "shop", "queue": "mail"}}}, "queue"),
        ({"workers": {"mail": {"image": "shop:1"}}}, "app"),
        ({"workers": {"Mail": {"image": "shop:1", "app": "shop"}}}, "Mail"),
        ({"workers": {"mail": {"image": "x", "app": "shop", "pod": {"env": "TZ"}}}}, "env"),
        ({"pod": {"toleration": []}}, "toleration"),
        ({"nodes": 0}, "nodes"),
        ({"nodes": "3"}, "nodes"),
        ({"address": "no-port"}, "address"),
        ({"tls": {"clients": "maybe"}}, "clients"),
        ({"storage": {"size": "5 GB"}}, "size"),
        ({"storage": {"whenScaled": "Drop"}}, "whenScaled"),
        ({"resources": {"request": {}}}, "request"),
        ({"console": {"prefix": "disque"}}, "prefix"),
        ({"keda": {"prometheus": "prometheus:9090"}}, "prometheus"),
        ({"watch": {"webhook": "hooks.example.com"}}, "webhook"),
        ({"audit": {"enabled": True}}, "audit.logs or events.claim"),
        ({"audit": {"enabled": True, "logs": ["/x"]}}, "audit.image"),
        ({"watch": {"enabled": True, "image": "x"}}, "watch.logs or events.claim"),
        ({"compact": {"enabled": True}, "archive": {"image": "x"}}, "archive.storage.size"),
    ],
)
def test_a_mistake_in_the_values_is_named(values: dict[str, Any], place: str) -> None:
    with pytest.raises(helm.HelmError, match=place):
        Rendered(values)
