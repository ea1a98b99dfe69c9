"""Renders the chart with Helm's own engine, and checks what comes out against the schemas of the
API server and of the custom resources."""

import importlib
from collections.abc import Iterator, Mapping
from typing import Any, Final

import helm_python as helm
import kubernetes_validate
import yaml

from tests.support import ROOT

CHART: Final = ROOT / "config" / "helm" / "disque"
RELEASE: Final = "jobs"
VERSIONS: Final = ("1.37", "1.27")
"""Of Kubernetes: the latest, and the first that the chart is for."""

_MODELS: Final = {
    "monitoring.coreos.com/v1": "prometheus_operator.v1",
    "cert-manager.io/v1": "cert_manager.v1",
    "keda.sh/v1alpha1": "keda.v1alpha1",
}
"""For the API version of custom resources: the module of ``cloudcoil.models`` that was made from
their definitions."""

Manifest = dict[str, Any]

MAIL: Final = {"image": "shop:7", "app": "shop.tasks:app", "queues": ["mail", "sms:5", "hooks.a"]}
SCALE: Final = {"min": 1, "max": 9, "jobsPerWorker": 4, "prometheus": "http://prometheus:9090"}
ALL: Final[dict[str, Any]] = {
    "tls": {"enabled": True, "clients": "yes", "certManager": {"enabled": True, "issuer": "ca"}},
    "networkPolicy": {"enabled": True},
    "monitoring": {
        "serviceMonitor": {"enabled": True},
        "rules": {"enabled": True},
        "dashboard": {"enabled": True},
    },
    "console": {
        "enabled": True,
        "acl": True,
        "storage": {"size": "1Gi"},
        "ingress": {"enabled": True, "host": "jobs.example.com", "tlsSecret": "web"},
    },
    "workers": {"mail": {**MAIL, "autoscale": SCALE}, "sms": {**MAIL, "replicas": 3}},
    "archive": {
        "enabled": True,
        "image": "archive:1",
        "queues": ["log"],
        "storage": {"size": "9Gi"},
    },
    "compact": {"enabled": True},
    "events": {"claim": "logs"},
    "audit": {"enabled": True, "storage": {"size": "9Gi"}},
    "watch": {"enabled": True, "storage": {"size": "9Gi"}},
    "backup": {"enabled": True, "claim": "copies"},
    "keda": {"enabled": True},
}

"""Values with which everything is rendered."""


class Rendered:
    """The manifests of a release ``jobs``, by kind and name.

    Attributes:
        notes: what Helm prints.
        files: the text of each template.
    """

    def __init__(self, values: Mapping[str, Any]) -> None:
        with helm.Chart.load(str(CHART)) as chart:
            files = self.files = chart.render(values=dict(values), name=RELEASE, namespace="shop")
        (notes,) = [name for name in files if name.endswith("NOTES.txt")]
        self.notes = files.pop(notes)
        self.manifests: dict[tuple[str, str], Manifest] = {}
        for text in files.values():
            for manifest in parsed(text):
                key = manifest["kind"], manifest["metadata"]["name"]
                assert key not in self.manifests
                self.manifests[key] = manifest

    def __getitem__(self, key: tuple[str, str]) -> Manifest:
        return self.manifests[key]

    def kinds(self) -> set[str]:
        return {kind for kind, _ in self.manifests}

    def pods(self) -> Iterator[tuple[str, Manifest]]:
        """The templates of all pods, with the names of what makes them."""
        for (kind, name), manifest in self.manifests.items():
            spec = manifest.get("spec", {})
            if kind == "Pod":
                yield name, manifest
            elif kind == "CronJob":
                yield name, spec["jobTemplate"]["spec"]["template"]
            elif "template" in spec:
                yield name, spec["template"]

    def container(self, kind: str, name: str) -> Manifest:
        """The only container of the pods of a StatefulSet, a Deployment or a CronJob."""
        spec = self[kind, name]["spec"]
        (only,) = spec.get("jobTemplate", {"spec": spec})["spec"]["template"]["spec"]["containers"]
        assert isinstance(only, dict)
        return only


def parsed(text: str) -> list[Manifest]:
    """The manifests in a file."""
    found = yaml.load_all(text, yaml.CSafeLoader)  # a safe one, too
    return [manifest for manifest in found if manifest]


def rendered(**values: Any) -> Rendered:
    return Rendered(values)


def check(manifest: Manifest) -> None:
    """Raises an error, or fails, if the API server would refuse ``manifest`` or drop a part of
    it."""
    version = manifest["apiVersion"]
    if version not in _MODELS:
        for kubernetes in VERSIONS:
            kubernetes_validate.validate(manifest, kubernetes, strict=True)
        return
    models = importlib.import_module(f"cloudcoil.models.{_MODELS[version]}")
    model = getattr(models, manifest["kind"]).model_validate(manifest)
    # A model ignores what it does not know.
    read = model.model_dump(by_alias=True, exclude_unset=True, mode="json")
    assert _without_defaults(read, manifest) == manifest


def _without_defaults(read: Any, given: Any) -> Any:
    """``read`` without what was not ``given``, such as ``apiVersion`` of parts."""
    if isinstance(read, dict) and isinstance(given, dict):
        return {key: _without_defaults(read[key], given[key]) for key in read if key in given}
    if isinstance(read, list) and isinstance(given, list) and len(read) == len(given):
        return [_without_defaults(one, other) for one, other in zip(read, given, strict=True)]
    return read
