"""tools/budget.py finds the folders whose tests have become twice as expensive."""

import json
from pathlib import Path

import pytest

from tools import budget

BUDGETS = {"pure": {"tests/unit/node": 30.0, "tests/sim": 60.0}}


def over(spent: dict[str, float], speed: float = 1.0) -> list[str]:
    found = budget.compare({"pure": spent}, BUDGETS, speed)
    return [folder.name for folder in found if folder.is_over]


def test_a_folder_may_take_up_to_twice_its_budget() -> None:
    assert over({"tests/unit/node": 59.0, "tests/sim": 121.0}) == ["tests/sim"]


def test_a_machine_of_half_the_speed_may_take_twice_as_long() -> None:
    assert over({"tests/unit/node": 119.0, "tests/sim": 241.0}, speed=2.0) == ["tests/sim"]


def test_a_new_folder_may_take_some_seconds_before_it_needs_a_budget() -> None:
    assert over({"tests/unit/new": 9.0}) == []
    assert over({"tests/unit/new": 11.0}) == ["tests/unit/new"]


def test_the_status_is_that_of_the_comparison_and_update_makes_it_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(budget, "BUDGETS", tmp_path / "budget.json")
    runs = tmp_path / "runs"
    runs.mkdir()
    (runs / "pure.json").write_text(json.dumps({"tests/sim": 100.0}))
    assert budget.main([str(runs), "--update"]) == 0
    assert budget.main([str(runs)]) == 0
    (runs / "pure.json").write_text(json.dumps({"tests/sim": 1000.0}))
    assert budget.main([str(runs)]) == 1
