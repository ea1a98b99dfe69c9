"""What an audit remembers about the nodes."""

import json
from pathlib import Path

import pytest

from disque_spark.audit.held import are_all
from disque_spark.audit.store import Manifest, Store
from disque_spark.cli.arguments import parser
from disque_spark.cli.checks import UsageError, check_audit

A, B, C = "a" * 40, "b" * 40, "c" * 40


def aof(directory: Path, node: str) -> Path:
    directory.mkdir()
    (directory / "nodes.conf").write_text(f"{node} 127.0.0.1:2 myself - 0 0 0 connected\n")
    return directory / "disque.aof"


def test_a_node_that_is_named_and_has_no_log_is_missing_until_it_is_said_to_be_gone() -> None:
    manifest = Manifest(nodes=[A], peers=[A, B, C])
    assert manifest.missing_nodes == [B, C]
    manifest.gone = [B]
    assert manifest.missing_nodes == [C]
    # What it did is unknown nevertheless.
    assert manifest.without_logs == [B, C]


def test_files_of_all_nodes_are_those_of_nodes_without_logs_too(tmp_path: Path) -> None:
    manifest = Manifest(nodes=[A], peers=[A, B])
    one, other = aof(tmp_path / "a", A), aof(tmp_path / "b", B)
    assert not are_all([one], manifest.holders)
    assert are_all([one, other], manifest.holders)
    # A node that was removed holds nothing.
    manifest.gone = [B]
    assert are_all([one], manifest.holders)


def test_which_nodes_are_gone_is_kept(tmp_path: Path) -> None:
    store = Store(tmp_path / "audit")
    store.commit(Manifest(gone=[B]))
    assert Store(tmp_path / "audit").manifest.gone == [B]


def test_an_audit_of_an_older_version_can_be_gone_on_with(tmp_path: Path) -> None:
    fields = {"version": 1, "parts": [1], "segments": {"events-aaaaaaaa-1-0.jsonl": 7}}
    version = tmp_path / "versions" / "000001"
    version.mkdir(parents=True)
    (version / "manifest.json").write_text(json.dumps(fields))
    (tmp_path / "current").symlink_to(Path("versions") / "000001")
    store = Store(tmp_path)
    assert (store.manifest.gone, store.manifest.segments) == ([], fields["segments"])
    assert store.current == version


def test_links_of_older_programs_go_with_the_last_version_that_has_some(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.commit(Manifest())
    old = tmp_path / "views" / "jobs" / "2026-11-01-000001"
    old.mkdir(parents=True)
    link = tmp_path / "views" / "000001" / "jobs" / "day=2026-11-01"
    link.symlink_to(Path("../../jobs") / old.name)
    store.commit(Manifest())
    assert link.is_dir()  # a program may still read it
    store.commit(Manifest())
    assert not old.exists()
    assert (tmp_path / "current" / "jobs").is_dir()


@pytest.mark.parametrize("node", ["", "bbbbbbbb", "127.0.0.1:7711", "B" * 40])
def test_a_node_is_said_to_be_gone_by_its_whole_id(tmp_path: Path, node: str) -> None:
    log = tmp_path / "events-aaaaaaaa-0000000000001-0.jsonl"
    log.touch()
    words = ["audit", str(log), "--output", str(tmp_path / "audit"), "--without"]
    with pytest.raises(UsageError, match="--without"):
        check_audit(parser().parse_args([*words, node]))
    check_audit(parser().parse_args([*words, A, "--without", B]))
