"""What docs/kubernetes.md says to type: releases can be installed, and pods know the commands."""

import shlex
from collections.abc import Iterator
from copy import deepcopy
from itertools import pairwise
from typing import Any

import pytest
import yaml

pytest.importorskip("helm_python")
pytest.importorskip("kubernetes_validate")

import helm_python as helm

from disque_trio.cli.subcommands import table
from tests.support import ROOT
from tests.support.doc_blocks import blocks
from tests.support.helm import CHART, Rendered, check, parsed

PAGE = "docs/kubernetes.md"
SHELL = ("", "text")  # languages


def commands(program: str) -> Iterator[list[str]]:
    """The commands of the page that call ``program``, as words."""
    for block in blocks(PAGE):
        if block.language in SHELL:
            for line in block.text.splitlines():
                if line.startswith(f"{program} "):
                    yield shlex.split(line)


def merged(values: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    """As --reuse-values does."""
    found = deepcopy(values)
    for key, value in more.items():
        old = found.get(key)
        both = isinstance(old, dict) and isinstance(value, dict)
        found[key] = merged(old, value) if both else deepcopy(value)
    return found


def valid(values: dict[str, Any]) -> Rendered:
    found = Rendered(values)
    for text in found.files.values():
        for manifest in parsed(text):
            check(manifest)
    return found


def test_releases_of_the_page_can_be_installed_one_after_the_other() -> None:
    values: dict[str, Any] = {}
    typed = [words for words in commands("helm") if words[1] in ("install", "upgrade")]
    assert len(typed) >= 7
    for words in typed:
        assert ROOT / words[3] == CHART
        assert words[1] == "install" or "--reuse-values" in words
        for option, expression in pairwise(words):
            if option == "--set":
                values = merged(values, helm.parse_set_string(expression))
        found = valid(values)
    assert {"Certificate", "ServiceMonitor", "PrometheusRule", "CronJob", "ScaledObject"} <= (
        found.kinds()
    )


def test_the_values_of_the_page_are_taken() -> None:
    files = [block.text for block in blocks(PAGE) if block.language == "yaml"]
    assert files
    for text in files:
        found = valid(yaml.safe_load(text))
        assert ("Deployment", "jobs-mail") in found.manifests


def test_the_secret_of_the_page_has_what_pods_look_for() -> None:
    (words,) = [words for words in commands("kubectl") if words[1] == "create"]
    keys = {word.split("=")[1] for word in words if word.startswith("--from-literal")}
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert words[2:5] == ["secret", "generic", values["secret"]]
    node = Rendered({}).container("StatefulSet", "jobs")
    paths = [entry["value"] for entry in node["env"] if entry["name"].endswith("_FILE")]
    assert {path.rpartition("/")[2] for path in paths} == keys


def test_pods_know_what_is_run_in_them() -> None:
    run = [words for words in commands("kubectl") if words[1] == "exec"]
    assert run
    for words in run:
        assert words[3:6] == ["--", "disque-container", "disque"]
        assert words[6] == "check" or table.find([words[6].encode()])
    (scale,) = [words for words in commands("kubectl") if words[1] == "scale"]
    assert scale[2:4] == ["statefulset", "jobs"]
