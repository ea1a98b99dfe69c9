"""What is said about an extra that is missing, where there is no checkout."""

import shlex
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from disque_trio import extras

INSTALLED = {
    "disque-trio": ['cronsim>=2; extra == "cron"', 'disque-spark[connect]==1; extra == "far"'],
    "disque-spark": [
        "disque-trio==1",
        'disque-spark[pyspark]; extra == "connect"',
        'grpcio>=1; extra == "connect"',
        'pandas<3; extra == "pyspark"',
    ],
}


def requires(distribution: str) -> list[str]:
    try:
        return INSTALLED[distribution]
    except KeyError:
        raise PackageNotFoundError(distribution) from None


@pytest.mark.parametrize(
    ("extra", "needed"), [("cron", ["cronsim>=2"]), ("far", ["pandas<3", "grpcio>=1"])]
)
def test_what_it_needs_is_named_without_our_own_distributions(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, extra: str, needed: list[str]
) -> None:
    monkeypatch.setattr(extras, "__file__", str(tmp_path / "disque_trio" / "extras.py"))
    monkeypatch.setattr("importlib.metadata.requires", requires)
    assert shlex.split(extras.how_to_install(extra))[4:] == needed


def test_an_extra_of_a_distribution_that_is_missing_too_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(extras, "__file__", str(tmp_path / "disque_trio" / "extras.py"))
    monkeypatch.setattr(
        "importlib.metadata.requires", {"disque-trio": INSTALLED["disque-trio"]}.get
    )
    assert extras.how_to_install("near") == "the extra near of disque-trio"
