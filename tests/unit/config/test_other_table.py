"""The machinery works for a program with its own table of settings."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import pytest

from disque_trio.config import ConfigErrors, Param, Settings, rewrite
from disque_trio.config.load import check_settings_file, load_settings, parse_arguments
from disque_trio.config.params import Table, make_table
from disque_trio.config.types import Int, Text


def param(name: str, default: str = "1") -> Param:
    return Param(name, Int(), default, "Help.", "Any", settable=True)


class Other(Settings):
    table: ClassVar[Table] = make_table(
        [param("workers"), Param("redis-addr", Text(), "localhost", "Help.", "Any")]
    )
    workers: int
    redis_addr: str


def test_another_table_loads_sets_and_rewrites(tmp_path: Path) -> None:
    path = tmp_path / "other.yaml"
    path.write_text("# mine\nworkers: 3\n")
    config = load_settings(Other, str(path), parse_arguments(Other.table, ["--redis-addr", "x"]))
    assert (config.workers, config.redis_addr) == (3, "x")
    assert config.config_set([(b"workers", b"4")]) == ["workers"]
    rewrite(config)
    assert load_settings(Other, str(path)) == config
    assert path.read_text().startswith("# mine\nworkers: 4\n# Generated")


def test_the_names_of_another_table_are_checked(tmp_path: Path) -> None:
    path = tmp_path / "other.conf"
    path.write_text("worker 3\n")
    (error,) = check_settings_file(Other, str(path))
    assert error.reason == "unknown parameter, did you mean workers?"
    with pytest.raises(ConfigErrors):
        parse_arguments(Other.table, ["--port", "1"])


@pytest.mark.parametrize("names", [["a", "a"]])
def test_a_name_is_in_a_table_once(names: Sequence[str]) -> None:
    with pytest.raises(ValueError, match="twice"):
        make_table([param(name) for name in names])
