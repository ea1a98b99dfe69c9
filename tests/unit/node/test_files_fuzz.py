"""Whatever a disk makes of the files of a node, it starts with all that can still be read, or says
what is wrong with the append-only file; and it starts again as it was."""

import os
import random
import re
from pathlib import Path

import pytest

from disque_trio.aof.format import AofError
from disque_trio.node.commands.table import build_table
from tests.support.bus_fuzz import told, works
from tests.support.files_fuzz import SHARED, FiledNode, damaged_file, damaged_line, use
from tests.support.fuzzing import BYTES_A_SEED, fuzz_seeds


class Files:
    """The files of a node that has worked, and what it knew.

    Attributes:
        data: by name. told: its jobs. shared: what it shares with others.
        now: when it stopped, in ms.
    """

    def __init__(self, directory: Path, cleanly: bool) -> None:
        node = FiledNode(directory)
        use(node)
        self.now = node.bench.now
        self.told = told(node.bench)
        self.shared = node.shared()
        node.stop(cleanly)
        self.data = {path.name: path.read_bytes() for path in directory.iterdir() if path.is_file()}

    def start(self, directory: Path, **changed: bytes) -> FiledNode:
        """A node with these files, some of them changed."""
        directory.mkdir()
        for name, data in (self.data | changed).items():
            (directory / name).write_bytes(data)
        return FiledNode(directory, self.now)


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[Files, Files]:
    """The files of a node that was killed, and of one that was stopped."""
    first, second = (tmp_path_factory.mktemp("files") for _ in range(2))
    return Files(first, False), Files(second, True)


@pytest.fixture(autouse=True)
def quick_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that never waits."""
    for name in ("fsync", "fdatasync"):
        monkeypatch.setattr(os, name, lambda fd: None)


@pytest.mark.parametrize("cleanly", [False, True])
def test_the_files_have_all_that_a_node_knows(
    both: tuple[Files, Files], cleanly: bool, tmp_path: Path
) -> None:
    files = both[cleanly]
    shared = {f"nodes.conf.{what}" for what in SHARED}
    assert set(files.data) == {"aof", "aof.progress", *shared}
    assert min(map(len, files.data.values())) > 300
    assert min(map(len, files.shared.values())) >= 6
    words = set(files.data["nodes.conf.policies"].decode().split())
    assert set(re.findall("[A-Z]{3,}", build_table()[b"qset"].syntax)) <= words
    for what in ("schedules", "bindings"):
        assert b' "ann"\n' in files.data[f"nodes.conf.{what}"]  # the user who made them
    node = files.start(tmp_path / "same")
    assert node.warnings == []
    assert node.shared() == files.shared
    assert told(node.bench) == files.told
    node.stop()


@pytest.mark.parametrize("seed", fuzz_seeds(200_000))
@pytest.mark.slow
def test_a_node_starts_with_damaged_files(
    both: tuple[Files, Files], seed: int, tmp_path: Path
) -> None:
    files = both[seed % 2]
    rng = random.Random(seed)
    sent = number = refused = 0
    refused_of: set[str] = set()
    while sent < BYTES_A_SEED:
        number += 1
        name = rng.choice(list(files.data))
        data = damaged_file(files.data[name], rng)
        sent += len(data)
        directory = tmp_path / str(number)
        try:
            node = files.start(directory, **{name: data})
        except AofError:
            refused += 1
            refused_of.add(name)
            continue
        for what in SHARED:
            if name != f"nodes.conf.{what}":
                assert node.shared()[what] == files.shared[what]
        if name != "aof":
            assert told(node.bench).keys() == files.told.keys()
        works(node.bench, "works")
        shared, jobs = node.shared(), told(node.bench)
        node.stop()
        again = FiledNode(directory, node.bench.now)
        assert again.skipped == []
        assert again.shared() == shared
        assert told(again.bench) == jobs
        again.stop()
    assert 0 < refused < number
    assert refused_of == {"aof"}


@pytest.mark.parametrize("seed", fuzz_seeds(100_000, part=4))
@pytest.mark.slow
def test_a_bad_line_costs_no_other_line(
    both: tuple[Files, Files], seed: int, tmp_path: Path
) -> None:
    files = both[seed % 2]
    rng = random.Random(seed)
    sent = number = skipped = 0
    while sent < BYTES_A_SEED:
        number += 1
        what = rng.choice(SHARED)
        name = f"nodes.conf.{what}"
        data, without, bad = damaged_line(files.data[name], rng)
        sent += len(data) + len(without)
        less = files.start(tmp_path / f"{number} without", **{name: without})
        known = less.shared()[what]
        less.stop()
        node = files.start(tmp_path / str(number), **{name: data})
        skipped += len(node.skipped)
        assert len(node.skipped) <= len(less.skipped) + 1  # a line may need an earlier one
        found = node.shared()[what]
        others = {name for name in known if name not in bad}  # it may be a later change of its own
        assert {name: found.get(name) for name in others} == {name: known[name] for name in others}
        node.stop()
    assert skipped > 0
