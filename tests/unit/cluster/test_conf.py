"""nodes.conf: the text, and the file that holds it."""

from __future__ import annotations

import fcntl
import os
import random
import stat
import string
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from disque_trio.cluster.membership import Membership
from disque_trio.cluster.nodes_conf import (
    NodeLine,
    NodesConf,
    NodesConfError,
    format_nodes,
    parse_nodes,
)
from disque_trio.cluster.nodes_file import NodesDisk, NodesFile, NodesFileError
from disque_trio.protocol.bus import (
    NODE_FAIL,
    NODE_HANDSHAKE,
    NODE_LEAVING,
    NODE_MYSELF,
    NODE_NOADDR,
    NODE_PFAIL,
    PacketWriter,
)
from tests.support.cluster_bench import START, MemoryNetwork, Wires

A, B, C, D = (letter * 40 for letter in "abcd")
FROM_C = (
    f"{B} 10.0.0.2:7712 noflags 0 1447000000123 connected\n"
    f"{A} 10.0.0.1:7711 myself,leaving 0 0 connected\n"
    f"{C} :0 fail,noaddr,leaving 1447000000999 1446999990000 disconnected\n"
    f"{D} ::1:7713 fail? 1447000000999 0 disconnected\n"
)


def test_the_file_of_a_c_node_is_understood() -> None:
    conf = parse_nodes(FROM_C)
    assert conf == NodesConf(
        NodeLine(A.encode(), "10.0.0.1", 7711, NODE_MYSELF | NODE_LEAVING, 0, 0, True),
        [
            NodeLine(B.encode(), "10.0.0.2", 7712, 0, 0, 1447000000123, True),
            NodeLine(
                C.encode(), "", 0, NODE_FAIL | NODE_NOADDR | NODE_LEAVING,
                1447000000999, 1446999990000, False,
            ),
            NodeLine(D.encode(), "::1", 7713, NODE_PFAIL, 1447000000999, 0, False),
        ],
    )  # fmt: skip


def test_what_is_written_is_what_a_c_node_writes() -> None:
    conf = parse_nodes(FROM_C)
    first, *rest = conf.others
    assert format_nodes([first, conf.myself, *rest]) == FROM_C


def test_all_flags_stand_in_their_order() -> None:
    flags = NODE_MYSELF | NODE_PFAIL | NODE_FAIL | NODE_HANDSHAKE | NODE_NOADDR | NODE_LEAVING
    line = format_nodes([NodeLine(A.encode(), "", 0, flags)])
    assert line == f"{A} :0 myself,fail?,fail,handshake,noaddr,leaving 0 0 connected\n"


@pytest.mark.parametrize(
    "text",
    [
        FROM_C + "\n\n\n",  # the padding of an interrupted write
        "vars lastVoteEpoch 0\n" + FROM_C + "VARS a b c\n",
        FROM_C.replace("\n", "\r\n"),
        FROM_C.replace("noflags", "NOFLAGS").replace("myself", "MySelf"),
        FROM_C + f"{'e' * 40} 10.0.0.9:1 handshake 0 0 connected\n",
        FROM_C.removesuffix("\n"),
    ],
)
def test_irrelevant_details_are_ignored(text: str) -> None:
    assert parse_nodes(text) == parse_nodes(FROM_C)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (f"{B} 10.0.0.2:7712 noflags 0 0", "6 fields are needed, there are 5"),
        (f"{B} 10.0.0.2:7712 noflags 0 0 connected x", "6 fields are needed, there are 7"),
        ("abc 10.0.0.2:7712 noflags 0 0 connected", "'abc' is not the id of a node"),
        (f"{'B' * 40} 10.0.0.2:1 noflags 0 0 connected", f"'{'B' * 40}' is not the id of a node"),
        (f"{B} 10.0.0.2 noflags 0 0 connected", "'10.0.0.2' is not an address"),
        (f"{B} fe80::1%\0:7712 noflags 0 0 connected", "'fe80::1%\\x00:7712' is not an address"),
        (f"{B} fe80::1%\ufffd:1 noflags 0 0 connected", "'fe80::1%\ufffd:1' is not an address"),
        (f"{B} 10.0.0.2:7712 {'x' * 9999} 0 0 connected", f"unknown flag '{'x' * 80}...'"),
        (f"{B} host:7712 noflags 0 0 connected", "'host:7712' is not an address"),
        (f"{B} 10.0.0.2:x noflags 0 0 connected", "'x' is not a port"),
        (f"{B} 10.0.0.2:65536 noflags 0 0 connected", "'65536' is not a port"),
        (f"{B} 10.0.0.2:7712 master 0 0 connected", "unknown flag 'master'"),
        (f"{B} 10.0.0.2:7712 fail, 0 0 connected", "unknown flag ''"),
        (f"{B} 10.0.0.2:7712 noflags x 0 connected", "'x' is not a time"),
        (f"{B} 10.0.0.2:7712 noflags 0 -1 connected", "'-1' is not a time"),
        (f"{B} 10.0.0.2:7712 myself 0 0 connected", "a second node is flagged as myself"),
        (f"{A} 10.0.0.2:7712 noflags 0 0 connected", f"node {A} is there twice"),
        ("\0" * 100, "6 fields are needed, there are 1"),
    ],
)
def test_a_bad_line_is_an_error_that_names_it(line: str, problem: str) -> None:
    with pytest.raises(NodesConfError) as caught:
        parse_nodes(f"\n{A} 10.0.0.1:7711 myself 0 0 connected\n{line}\n")
    assert str(caught.value) == f"line 3: {problem}"


@pytest.mark.parametrize("text", ["", "\n", f"{B} 10.0.0.2:7712 noflags 0 0 connected\n"])
def test_a_file_without_this_node_is_an_error(text: str) -> None:
    with pytest.raises(NodesConfError, match=r"^no node is flagged as myself$"):
        parse_nodes(text)


@given(st.text(alphabet=string.printable + "é\0", max_size=300))
def test_any_text_is_understood_or_an_error(text: str) -> None:
    try:
        parse_nodes(FROM_C + text)
    except NodesConfError:
        pass


_IPS = st.one_of(st.just(""), st.ip_addresses().map(str))


@given(
    st.lists(
        st.tuples(
            st.binary(min_size=20, max_size=20),
            _IPS,
            st.integers(0, 65_535),
            st.sampled_from([0, NODE_PFAIL, NODE_FAIL, NODE_NOADDR | NODE_LEAVING]),
            st.integers(0, 2**62),
            st.booleans(),
        ),
        unique_by=lambda fields: fields[0],
        min_size=1,
        max_size=5,
    )
)
def test_what_is_written_is_read_back(nodes: list[tuple[bytes, str, int, int, int, bool]]) -> None:
    lines = [
        NodeLine(id.hex().encode(), ip, port, flags, time, 0, up)
        for id, ip, port, flags, time, up in nodes
    ]
    lines[0].flags |= NODE_MYSELF
    conf = parse_nodes(format_nodes(lines))
    again = [conf.myself, *conf.others]
    for line in again:
        line.ip = ""  # may be spelled differently
    for line in lines:
        line.ip = ""
    assert again == lines


# ---- what a membership takes from it ------------------------------------------------------------


def test_a_membership_takes_over_the_table_of_a_c_node() -> None:
    wires = Wires()
    (machine,) = wires.add(1)
    packets = PacketWriter(b"0" * 40, 7711)
    member = Membership(packets, MemoryNetwork(machine).connect, random.Random(1))
    member.load_conf(FROM_C, START)
    assert packets.id == A.encode()
    assert packets.packet(0, b"")[16:56] == A.encode()
    assert member.leaving
    assert member.size == 4
    assert member.endpoint() == ("10.0.0.1", 7711)
    assert member.reachable == [B.encode()]
    assert not member.config_changed
    assert {p.id.decode(): p.priority for p in member.others()} == {B: 5, C: 100, D: 10}
    again = parse_nodes(member.dump_conf())
    assert [(n.id, n.flags, n.ip) for n in again.others] == [
        (n.id, n.flags, n.ip) for n in parse_nodes(FROM_C).others
    ]
    member.cron(START)
    assert sorted(machine.connects) == [("10.0.0.2", 17712), ("::1", 17713)]


def test_a_table_of_more_nodes_than_a_cluster_can_have_is_refused() -> None:
    def table(count: int) -> str:
        others = (f"{n:040x} 192.0.2.1:{n} noflags 0 0 connected\n" for n in range(count))
        return f"{A} :7711 myself 0 0 connected\n" + "".join(others)

    wires = Wires()
    (machine,) = wires.add(1)
    with pytest.raises(NodesConfError, match=r"^1001 other nodes"):
        machine.member.load_conf(table(1001), START)
    machine.member.load_conf(table(1000), START)
    assert machine.member.size == 1001


def test_a_bad_table_changes_nothing() -> None:
    wires = Wires()
    (machine,) = wires.add(1)
    before = machine.member.describe()
    with pytest.raises(NodesConfError):
        machine.member.load_conf(FROM_C + "rubbish\n", START)
    assert machine.member.describe() == before
    assert machine.member.size == 1


def test_the_table_is_saved_when_it_changes_and_only_then() -> None:
    wires = Wires()
    first, second = wires.join(2)
    wires.run(5)
    assert first.conf.split()[:3] == first.member.dump_conf().split()[:3]
    assert second.id.decode() in first.conf
    saves = first.saves
    wires.run(30)
    assert first.saves == saves
    first.member.set_leaving(False)
    assert not first.member.config_changed
    first.member.set_leaving(True)
    wires.run(0.1)
    assert first.saves == saves + 1
    assert "myself,leaving" in first.conf
    first.member.forget(second.id)
    wires.run(0.1)
    assert second.id.decode() not in first.conf


def test_a_save_that_fails_leaves_the_table_to_be_saved() -> None:
    wires = Wires()
    (machine,) = wires.add(1)
    machine.member.set_leaving(True)
    machine.save_problem = "No space left on device"
    assert machine.member.save() == "No space left on device"
    assert machine.member.config_changed
    machine.save_problem = None
    assert machine.member.save() is None
    assert not machine.member.config_changed


# ---- the file -----------------------------------------------------------------------------------


class FlakyDisk(NodesDisk):
    """Records the order of calls, fails on demand, and writes little at a time."""

    def __init__(self, fail: str = "", code: int = 28) -> None:
        self.fail = fail
        self.code = code
        self.calls: list[str] = []
        self.armed = False

    def _call(self, name: str) -> None:
        self.calls.append(name)
        if self.armed and name == self.fail:
            raise OSError(self.code, os.strerror(self.code))

    def open(self, path: str, fresh: bool = False) -> int:
        self._call("open")
        return super().open(path, fresh)

    def lock(self, fd: int) -> None:
        self._call("lock")
        super().lock(fd)

    def read(self, fd: int) -> bytes:
        self._call("read")
        return super().read(fd)

    def write(self, fd: int, data: bytes) -> int:
        self._call("write")
        return super().write(fd, data[:100])

    def sync(self, fd: int) -> None:
        self._call("sync")
        super().sync(fd)

    def replace(self, old: str, new: str) -> None:
        self._call("replace")
        super().replace(old, new)

    def sync_directory(self, path: str) -> None:
        self._call("sync_directory")
        super().sync_directory(path)


def test_a_new_file_is_empty_and_holds_what_was_saved_last(tmp_path: Path) -> None:
    path = tmp_path / "nodes.conf"
    file = NodesFile(str(path))
    assert file.load() == ""
    assert file.save(FROM_C) is None
    assert path.read_text() == file.load() == FROM_C
    assert file.save("short\n") is None
    assert path.read_text() == file.load() == "short\n"
    assert list(tmp_path.iterdir()) == [path]
    assert stat.S_IMODE(path.stat().st_mode) & 0o600 == 0o600
    file.close()


def test_a_file_is_written_whole_before_it_gets_its_name(tmp_path: Path) -> None:
    disk = FlakyDisk()
    file = NodesFile(str(tmp_path / "nodes.conf"), disk)
    disk.calls.clear()
    assert file.save(FROM_C) is None
    writes = disk.calls.count("write")
    assert writes > 1
    expected = ["open", "lock", *["write"] * writes, "sync", "replace", "sync_directory"]
    assert disk.calls == expected
    file.close()


@pytest.mark.parametrize("step", ["open", "lock", "write", "sync", "replace"])
def test_a_save_that_fails_leaves_the_old_file_and_nothing_else(tmp_path: Path, step: str) -> None:
    path = tmp_path / "nodes.conf"
    disk = FlakyDisk(step)
    file = NodesFile(str(path), disk)
    assert file.save(FROM_C) is None
    disk.armed = True
    assert file.save("new\n") == "No space left on device"
    assert path.read_text() == FROM_C
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(NodesFileError):
        NodesFile(str(path))
    disk.armed = False
    assert file.save("new\n") is None
    assert path.read_text() == "new\n"
    file.close()


def test_a_directory_that_cannot_be_synced_is_reported(tmp_path: Path) -> None:
    disk = FlakyDisk("sync_directory", 5)
    file = NodesFile(str(tmp_path / "nodes.conf"), disk)
    disk.armed = True
    assert file.save(FROM_C) == "Input/output error"
    with pytest.raises(NodesFileError):
        NodesFile(str(tmp_path / "nodes.conf"))
    file.close()


def open_files(directory: Path) -> list[str]:
    """Return the names of the open files in ``directory``."""
    found = []
    for entry in Path("/proc/self/fd").iterdir():
        try:
            found.append(str(entry.readlink()))
        except FileNotFoundError:
            pass  # the listing itself
    return [name for name in found if name.startswith(str(directory))]


def test_saving_keeps_no_file_open_but_one(tmp_path: Path) -> None:
    file = NodesFile(str(tmp_path / "nodes.conf"))
    for n in range(20):
        assert file.save(f"{n}\n") is None
    assert open_files(tmp_path) == [str(tmp_path / "nodes.conf")]
    file.close()
    assert open_files(tmp_path) == []


_TRY = """
import fcntl, sys
with open(sys.argv[1], "r+") as file:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        print("locked")
    else:
        print("free")
"""


def locked_for_others(path: Path) -> bool:
    done = subprocess.run(
        [sys.executable, "-S", "-c", _TRY, path], capture_output=True, check=True, text=True
    )
    return {"locked": True, "free": False}[done.stdout.strip()]


def test_the_file_is_locked_for_other_processes_also_after_a_save(tmp_path: Path) -> None:
    path = tmp_path / "nodes.conf"
    file = NodesFile(str(path))
    assert locked_for_others(path)
    assert file.save(FROM_C) is None
    assert locked_for_others(path)
    with pytest.raises(NodesFileError, match="in use by a node that is running"):
        NodesFile(str(path))
    file.close()
    assert not locked_for_others(path)
    NodesFile(str(path)).close()


def test_a_file_that_is_replaced_while_it_is_locked_is_not_mistaken(tmp_path: Path) -> None:
    path = tmp_path / "nodes.conf"
    owner = NodesFile(str(path))
    assert owner.save("old\n") is None

    class Late(NodesDisk):
        """The owner saves and exits between our open and our lock."""

        opened = 0

        def lock(self, fd: int) -> None:
            self.opened += 1
            if self.opened == 1:
                assert owner.save(FROM_C) is None
                owner.close()
            super().lock(fd)

    disk = Late()
    file = NodesFile(str(path), disk)
    assert disk.opened == 2
    assert file.load() == FROM_C
    assert locked_for_others(path)
    file.close()


def test_a_symbolic_link_stays_one(tmp_path: Path) -> None:
    real = tmp_path / "real"
    real.mkdir()
    link = tmp_path / "nodes.conf"
    link.symlink_to(real / "nodes.conf")
    file = NodesFile(str(link))
    assert file.save(FROM_C) is None
    assert link.is_symlink()
    assert (real / "nodes.conf").read_text() == FROM_C
    file.close()


def test_a_place_where_no_file_can_be_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(NodesFileError, match="No such file or directory"):
        NodesFile(str(tmp_path / "no" / "nodes.conf"))


def test_a_file_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    disk = FlakyDisk("read", 5)
    file = NodesFile(str(tmp_path / "nodes.conf"), disk)
    disk.armed = True
    with pytest.raises(NodesFileError, match="Input/output error"):
        file.load()
    file.close()


def test_a_lock_of_the_c_program_is_respected(tmp_path: Path) -> None:
    path = tmp_path / "nodes.conf"
    with path.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(NodesFileError, match="in use by a node that is running"):
            NodesFile(str(path))
