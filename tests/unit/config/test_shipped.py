"""The shipped files and the documentation agree with the table."""

from __future__ import annotations

import re
import runpy
import shutil
from pathlib import Path

import pytest

from disque_trio.config import SECTIONS, TABLE, Config, OutputBufferLimit, load_settings, rewrite
from tests.support import ROOT

FILES = [ROOT / "config" / "disque.conf", ROOT / "config" / "disque.yaml"]
SHIPPED = {
    "appendonly": True,
    "bind": ("127.0.0.1", "::1"),
    "client-output-buffer-limit": OutputBufferLimit(1024**3, 256 * 1024**2, 60),
}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_shipped_file_loads_to_what_is_announced(path: Path) -> None:
    assert load_settings(Config, str(path)) == Config(SHIPPED)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_shipped_file_has_every_parameter(path: Path) -> None:
    text = path.read_text()
    for name, param in TABLE.items():
        # Examples for settings without a default are indented in a comment.
        sign = "#   " if not param.stored or param.type.adds_up else "#?"
        assert re.search(rf"^{sign}{name}:?( |$)", text, re.MULTILINE), name


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_what_a_shipped_file_comments_out_are_the_defaults(path: Path, tmp_path: Path) -> None:
    copy = tmp_path / path.name
    copy.write_text(re.sub(r"^#(?=[a-z])", "", path.read_text(), flags=re.MULTILINE))
    assert load_settings(Config, str(copy)) == Config(SHIPPED)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_rewritten_shipped_file_keeps_all_its_lines(path: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copy(path, tmp_path))
    config = load_settings(Config, str(copy))
    config.config_set([(b"maxmemory", b"2gb"), (b"hz", b"20")])
    rewrite(config)
    assert load_settings(Config, str(copy)) == config
    old, new = path.read_text().splitlines(), copy.read_text().splitlines()
    differing = [number for number, line in enumerate(old) if line != new[number]]
    assert [old[number] for number in differing] in (["maxmemory 1gb"], ["maxmemory: 1gb"])
    assert len(new) == len(old) + 3


def test_every_parameter_is_documented_in_a_known_section() -> None:
    for param in TABLE.values():
        assert param.section in SECTIONS, param.name
        assert param.help.endswith("."), param.name


def test_the_generated_pages_are_up_to_date() -> None:
    made = runpy.run_path(str(ROOT / "tools" / "make_docs.py"))
    for path in made["PAGES"]:
        text = (ROOT / path).read_text(encoding="utf-8")
        assert text == made["page"](path), f"run make docs: {path}"
