"""disque-check-aof: what it finds, prints, truncates, keeps and salvages."""

import os
import re
import subprocess
import sys
from contextlib import redirect_stdout
from io import StringIO
from itertools import accumulate
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from disque_trio.aof import check, scanner
from disque_trio.aof.check import main
from disque_trio.aof.format import CHUNK, deljob, loadjob
from disque_trio.aof.scanner import Scanner, skim
from disque_trio.protocol.serialjob import JobWriter, SerialJobError, decode_job
from disque_trio.protocol.trailer import CANCELLED, FLAG_TRAILER, Ending, Trailer
from tests.support import ROOT
from tests.support.trailers import full_trailer, job_with

NODE = b"dcb833cf" + b"0" * 32
SCRIPT = ROOT / "tools" / "disque-check-aof"


def job_id(number: int) -> bytes:
    return b"D-dcb833cf-%024d-05a1" % number


def job(number: int, body: bytes = b"x" * 100, queue: bytes = b"queue") -> bytes:
    nodes = NODE
    return JobWriter().encode(
        job_id(number), 2, 0, 1, 1 << 31, 1 << 60, 0, 300, 0, 0, queue, body, nodes
    )


def load(number: int, body: bytes = b"x" * 100, queue: bytes = b"queue") -> bytes:
    return loadjob(job(number, body, queue))


THREE = [load(1), load(2, queue=b"other"), deljob(job_id(1))]

records = st.lists(
    st.one_of(
        st.builds(load, st.integers(0, 99), st.binary(max_size=60), st.binary(max_size=9)),
        st.integers(0, 99).map(lambda number: deljob(job_id(number))),
    ),
    min_size=1,
    max_size=6,
)


def lines_of(*arguments: str | Path) -> tuple[int, list[str]]:
    """Return the exit status and the printed lines."""
    out = StringIO()
    with redirect_stdout(out):
        try:
            status = main([str(argument) for argument in arguments])
        except SystemExit as ended:
            status = int(ended.code or 0)
    return status, out.getvalue().splitlines()


def names(directory: str | Path) -> list[str]:
    return sorted(path.name for path in Path(directory).iterdir())


def first_bad(data: bytes) -> int | None:
    """Return the offset of the first bad record that the tool finds in ``data``."""
    with TemporaryDirectory() as directory:
        path = Path(directory, "aof")
        path.write_bytes(data)
        status, lines = lines_of(path)
    ok_up_to = int(re.findall(r"ok_up_to=(\d+)", "\n".join(lines))[0])
    assert (status == 0) == (ok_up_to == len(data))
    return None if status == 0 else ok_up_to


def salvaged(data: bytes) -> bytes:
    """Return what ``--salvage`` recovers from ``data``."""
    with TemporaryDirectory() as directory:
        path, out = Path(directory, "aof"), Path(directory, "out")
        path.write_bytes(data)
        status, _ = lines_of("--salvage", out, path)
        assert names(directory) == (["aof", "out"] if status == 0 else ["aof"])
        return out.read_bytes() if status == 0 else b""


@pytest.fixture
def aof(tmp_path: Path) -> Path:
    """Two jobs in two queues and a delete."""
    path = tmp_path / "disque.aof"
    path.write_bytes(b"".join(THREE))
    return path


# ---- the output and exit codes of C Disque -------------------------------------------------------


def test_a_valid_file_is_reported_as_valid(aof: Path) -> None:
    size = aof.stat().st_size
    assert lines_of(aof) == (
        0,
        [
            "Good records: jobs=2, queues=2, deletes=1",
            f"Checksums: for 0 of {size} bytes",
            f"AOF analyzed: size={size}, ok_up_to={size}, diff=0",
            "AOF is valid",
        ],
    )


def test_a_cut_file_is_not_valid(aof: Path) -> None:
    aof.write_bytes(aof.read_bytes()[:-5])
    size = aof.stat().st_size
    good = len(THREE[0] + THREE[1])
    status, lines = lines_of(aof)
    assert status == 1
    assert lines[-2:] == [
        f"AOF analyzed: size={size}, ok_up_to={good}, diff={size - good}",
        "AOF is not valid",
    ]


@pytest.mark.parametrize("content", [None, b""])
def test_a_missing_or_empty_file_is_refused(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "aof"
    if content is None:
        expected = [f"Cannot open file: {path}", "No such file or directory"]
    else:
        path.write_bytes(content)
        expected = [f"Empty file: {path}"]
    for arguments in ([path], ["--fix", path], ["--salvage", tmp_path / "out", path]):
        assert lines_of(*arguments) == (1, expected)


def test_anything_but_a_regular_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe"):
        assert lines_of(path) == (1, [f"Cannot open file: {path}", "Not a regular file"])


@pytest.mark.parametrize(
    "arguments",
    [[], ["--nonsense", "a"], ["a", "b"], ["--yes", "a"], ["--fix", "--salvage", "b", "a"]],
)
def test_a_wrong_command_line_ends_with_1(arguments: list[str]) -> None:
    status, lines = lines_of(*arguments)
    assert status == 1
    assert lines[0].startswith("usage: disque-check-aof")


# ---- --fix ---------------------------------------------------------------------------------------


def backups(path: Path) -> list[bytes]:
    found = [other for other in path.parent.iterdir() if other != path]
    assert all(re.fullmatch(r"disque\.aof\.bak-\d{8}-\d{6}", other.name) for other in found)
    return [other.read_bytes() for other in found]


@pytest.mark.parametrize("answer", ["y\n", "YES\n", "yes"])
def test_fix_asks_copies_and_cuts(aof: Path, answer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    good = aof.read_bytes()
    aof.write_bytes(good + b"garbage")
    aof.chmod(0o640)
    monkeypatch.setattr("sys.stdin", StringIO(answer))
    size = len(good)
    status, lines = lines_of("--fix", aof)
    assert status == 0
    assert not any(line.startswith("To repair it") for line in lines)
    assert lines[-4] == f"AOF analyzed: size={size + 7}, ok_up_to={size}, diff=7"
    assert lines[-3] == (
        f"This will shrink the AOF from {size + 7} bytes, with 7 bytes, to {size} bytes"
    )
    assert lines[-2].startswith("Continue? [y/N]: ")
    assert lines[-1] == "Successfully truncated AOF"
    assert aof.read_bytes() == good
    assert backups(aof) == [good + b"garbage"]
    assert {path.stat().st_mode & 0o777 for path in aof.parent.iterdir()} == {0o640}
    assert lines_of(aof)[0] == 0


@pytest.mark.parametrize("answer", ["n\n", "\n", "", "yeah\n", "no y\n"])
def test_fix_changes_nothing_unless_agreed(
    aof: Path, answer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = aof.read_bytes() + b"garbage"
    aof.write_bytes(bad)
    monkeypatch.setattr("sys.stdin", StringIO(answer))
    status, lines = lines_of("--fix", aof)
    assert (status, lines[-1]) == (1, "Continue? [y/N]: Aborting...")
    assert aof.read_bytes() == bad
    assert backups(aof) == []


def test_fix_yes_does_not_ask(aof: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good = aof.read_bytes()
    aof.write_bytes(good + b"garbage")
    monkeypatch.setattr("sys.stdin", None)
    status, lines = lines_of("--fix", "--yes", aof)
    assert (status, lines[-1]) == (0, "Successfully truncated AOF")
    assert aof.read_bytes() == good


def test_fix_leaves_a_valid_file_alone(aof: Path) -> None:
    good = aof.read_bytes()
    status, lines = lines_of("--fix", aof)
    assert (status, lines[-1]) == (0, "AOF is valid")
    assert aof.read_bytes() == good
    assert backups(aof) == []


def test_fix_changes_nothing_when_there_is_no_room_for_the_copy(
    aof: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = aof.read_bytes() + b"garbage"
    aof.write_bytes(bad)
    real = os.statvfs(aof)
    full = os.statvfs_result([*real[:4], 0, *real[5:10]])
    monkeypatch.setattr(os, "statvfs", lambda path: full)
    status, lines = lines_of("--fix", "--yes", aof)
    assert (status, lines[-1]) == (1, "The AOF is as it was")
    assert aof.read_bytes() == bad
    assert backups(aof) == []


def test_a_new_file_that_cannot_be_written_is_named(aof: Path, tmp_path: Path) -> None:
    out = tmp_path / "missing" / "out"
    status, lines = lines_of("--salvage", out, aof)
    assert (status, lines) == (1, [f"Cannot write {out}: No such file or directory"])


@pytest.mark.parametrize("call", ["copy_file_range", "fsync"])
def test_fix_changes_nothing_when_the_copy_fails(
    aof: Path, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = aof.read_bytes() + b"garbage"
    aof.write_bytes(bad)

    def fail(*arguments: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, call, fail)
    assert lines_of("--fix", "--yes", aof)[0] == 1
    assert aof.read_bytes() == bad
    assert backups(aof) == []


def test_the_copy_is_on_the_disk_before_the_file_is_cut(
    aof: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []

    def note(name: str) -> None:
        real = getattr(os, name)

        def call(descriptor: int, *rest: int) -> object:
            file = Path(f"/proc/self/fd/{descriptor}").readlink().name
            calls.append(f"{name} {file.split('-')[0]}")
            return real(descriptor, *rest)

        monkeypatch.setattr(os, name, call)

    aof.write_bytes(aof.read_bytes() + b"garbage")
    note("fsync")
    note("ftruncate")
    assert lines_of("--fix", "--yes", aof)[0] == 0
    directory = f"fsync {aof.parent.name.split('-')[0]}"
    assert calls == [
        "fsync disque.aof.bak",
        directory,
        "ftruncate disque.aof",
        "fsync disque.aof",
        directory,
    ]


def test_fix_refuses_a_file_that_is_written_to_meanwhile(
    aof: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    aof.write_bytes(aof.read_bytes() + b"garbage")

    def append_and_agree() -> bool:
        with aof.open("ab") as file:
            file.write(THREE[0])
        return True

    monkeypatch.setattr(check, "_agreed", append_and_agree)
    status, _ = lines_of("--fix", aof)
    assert status == 1
    assert aof.read_bytes() == b"".join(THREE) + b"garbage" + THREE[0]
    assert backups(aof) == []


def test_a_copy_between_file_systems_that_know_no_copy_falls_back(
    aof: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object) -> int:
        raise OSError(18, "Invalid cross-device link")

    bad = aof.read_bytes() + b"garbage"
    aof.write_bytes(bad)
    monkeypatch.setattr(os, "copy_file_range", fail)
    assert lines_of("--fix", "--yes", aof)[0] == 0
    assert backups(aof) == [bad]


# ---- findings ------------------------------------------------------------------------------------


@given(records)
def test_every_record_a_node_writes_is_good(good: list[bytes]) -> None:
    assert first_bad(b"".join(good)) is None
    assert salvaged(b"".join(good)) == b"".join(good)


def test_a_cut_at_each_byte_is_found_at_the_record_that_was_cut(tmp_path: Path) -> None:
    ends = list(accumulate(map(len, THREE)))
    data = b"".join(THREE)
    path = tmp_path / "aof"
    for cut in range(1, len(data)):
        path.write_bytes(data[:cut])
        status, lines = lines_of(path)
        if cut in ends:
            assert status == 0
            continue
        good = max([end for end in ends if end < cut], default=0)
        assert lines[-2] == f"AOF analyzed: size={cut}, ok_up_to={good}, diff={cut - good}"
        assert "Truncated tail" in "".join(lines)


@given(records, st.data())
def test_a_flipped_bit_is_found_at_its_record_and_costs_only_that(
    good: list[bytes], data: st.DataObject
) -> None:
    whole = bytearray(b"".join(good))
    at = data.draw(st.integers(0, len(whole) - 1))
    whole[at] ^= 1 << data.draw(st.integers(0, 7))
    which = next(i for i, end in enumerate(accumulate(map(len, good))) if at < end)
    start = sum(map(len, good[:which]))
    hit = bytes(whole[start : start + len(good[which])])
    found = first_bad(bytes(whole))
    others = b"".join(good[:which]), b"".join(good[which + 1 :])
    if found is None:
        # The format has no checksums: a different body, number or ID looks just as valid.
        assert salvaged(bytes(whole)) == bytes(whole)
        assert hit.upper().startswith((b"*2\r\n$7\r\nLOADJOB", b"*2\r\n$6\r\nDELJOB"))
    else:
        assert found == start
        assert salvaged(bytes(whole)) == b"".join(others)


@given(records, st.binary(min_size=1, max_size=80), st.data())
@example([load(1), load(2)], b"*2\r\n$7\r\nLOADJOB\r\n$", None)
@example([load(1), load(2)], load(3)[:100], None)
def test_garbage_between_records_costs_none_of_them(
    good: list[bytes], garbage: bytes, data: st.DataObject | None
) -> None:
    where = data.draw(st.integers(0, len(good))) if data else 1
    before, after = b"".join(good[:where]), b"".join(good[where:])
    assert first_bad(before + garbage + after) == len(before)
    assert salvaged(before + garbage + after) == before + after


# No digits: a number may begin with any number of zeros. No line ends: they might fall just where
# the damaged record should end.
@given(
    records,
    st.binary(min_size=1, max_size=80).filter(lambda g: b"\r" not in g and not g.isdigit()),
    st.data(),
)
def test_garbage_inside_of_a_record_costs_only_that_one(
    good: list[bytes], garbage: bytes, data: st.DataObject
) -> None:
    which = data.draw(st.integers(0, len(good) - 1))
    record = good[which]
    inside = data.draw(st.integers(1, len(record) - 1))
    before, after = b"".join(good[:which]), b"".join(good[which + 1 :])
    bad = record[:inside] + garbage + record[inside:]
    # Where the garbage leaves the record intact, it is garbage before or after it.
    assume(not bad.startswith(record) and not bad.endswith(record))
    whole = before + bad + after
    assert first_bad(whole) == len(before)
    assert salvaged(whole) == before + after


def test_a_record_inside_of_a_body_is_never_taken_for_one() -> None:
    nested = load(1, body=load(2) + load(3))
    assert salvaged(nested + b"garbage" + nested) == nested * 2
    # Nor when the enclosing job is bad, as long as its lengths are consistent.
    wrong = nested.replace(job_id(1), b"X" * 40)
    assert salvaged(nested + wrong + load(4)) == nested + load(4)


def test_records_that_a_node_would_load_are_good() -> None:
    lower = load(1).replace(b"LOADJOB", b"loadjob").replace(b"*2", b"*02")
    two = b"*3\r\n$6\r\nDELJOB\r\n$40\r\n%b\r\n$40\r\n%b\r\n" % (job_id(1), job_id(2))
    assert first_bad(THREE[0] + lower + THREE[1] + two + THREE[2]) is None


@pytest.mark.parametrize(
    "bad",
    [
        b"*1\r\n$4\r\nPING\r\n",
        b"*2\r\n$3\r\nSET\r\n$1\r\nx\r\n",
        b"*1\r\n$7\r\nLOADJOB\r\n",
        b"*1\r\n$6\r\nDELJOB\r\n",
        b"*2\r\n$6\r\nDELJOB\r\n$3\r\nabc\r\n",
        b"*2\r\n$6\r\nDELJOB\r\n$40\r\n" + b"x" * 40 + b"\r\n",
        loadjob(b"not a job"),
        loadjob(job(9) + b"more"),
        b"\0" * 300,
        load(9).replace(b"\r\n$", b"\n$"),
    ],
)
def test_records_that_a_node_would_not_load_are_bad(bad: bytes) -> None:
    assert first_bad(THREE[0] + bad + THREE[1]) == len(THREE[0])
    assert salvaged(THREE[0] + bad + THREE[1]) == THREE[0] + THREE[1]


def test_a_length_beyond_the_end_is_not_a_truncated_tail(aof: Path) -> None:
    bad = THREE[0].replace(b"$229", b"$929")
    assert bad != THREE[0]
    aof.write_bytes(bad + THREE[1] + THREE[2])
    text = "\n".join(lines_of(aof)[1])
    assert "First bad record: offset=0 (0x0): a length that goes past the end of the file" in text
    assert "Truncated tail" not in text
    assert f"Damaged: 0..{len(bad)}" in text
    assert "good records: jobs=1, deletes=1." in text
    assert f"disque-check-aof --salvage NEWFILE {aof}" in text


def test_jobs_longer_than_a_chunk_are_checked_too() -> None:
    big = load(1, body=os.urandom(CHUNK + 5000))
    middle = load(2, body=os.urandom(CHUNK * 3 // 4))
    assert first_bad(big + middle * 2 + big) is None
    cut = big[:5000] + big[5001:]
    assert first_bad(middle + cut + big + THREE[0]) == len(middle)
    assert salvaged(middle + cut + big + THREE[0]) == middle + big + THREE[0]


@given(st.binary(max_size=20), st.binary(max_size=9), st.data())
def test_the_quick_check_takes_no_job_that_the_decoder_refuses(
    body: bytes, queue: bytes, data: st.DataObject
) -> None:
    changed = bytearray(job(1, body, queue))
    for _ in range(data.draw(st.integers(0, 2))):
        at = data.draw(st.integers(0, len(changed) - 1))
        changed[at] = data.draw(st.integers(0, 255))
    record = loadjob(bytes(changed))
    names: set[bytes] = set()
    try:
        found = decode_job(bytes(changed))
        # Jobs with trailers are left to the careful check.
        expected = set() if found.flags & FLAG_TRAILER else {found.queue}
    except SerialJobError:
        expected = set()
    assert skim(record, 0, len(record), names) == ((len(record), 1, 0) if expected else (0, 0, 0))
    assert names == expected


def test_deletes_of_several_jobs_in_one_record_are_all_counted(tmp_path: Path) -> None:
    ids = b"".join(b"$40\r\n%b\r\n" % job_id(number) for number in (1, 2, 3))
    several = b"*4\r\n$6\r\nDELJOB\r\n" + ids
    file = write(tmp_path, *THREE, several)
    assert lines_of(file)[1][0] == "Good records: jobs=2, queues=2, deletes=4"


@pytest.mark.parametrize("behind", range(-4, 9))
def test_the_quick_check_reads_nothing_behind_a_job_whose_queue_seems_too_long(behind: int) -> None:
    changed = bytearray(job(1, b"", b"name"))
    at = changed.index(b"name") - 4
    changed[at : at + 4] = (len(changed) - at - 4 + behind).to_bytes(4, "little")
    record = loadjob(bytes(changed))
    assert skim(record, 0, len(record), set()) == (0, 0, 0)


@given(st.integers(1, 300), records, st.data())
def test_the_position_of_chunks_makes_no_difference(
    chunk: int, good: list[bytes], data: st.DataObject
) -> None:
    whole = bytearray(b"".join(good) * 3)
    for _ in range(data.draw(st.integers(0, 3))):
        whole[data.draw(st.integers(0, len(whole) - 1))] ^= 255

    def damage() -> list[tuple[int, int]]:
        with TemporaryDirectory() as directory:
            path = Path(directory, "aof")
            path.write_bytes(whole)
            with path.open("rb", buffering=0) as file:
                stretches = list(Scanner(file).stretches())
        assert [stretch.start for stretch in stretches[1:]] == [s.end for s in stretches[:-1]]
        assert (stretches[0].start, stretches[-1].end) == (0, len(whole))
        return [(s.start, s.end) for s in stretches if s.error is not None]

    expected = damage()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scanner, "CHUNK", 4096 + chunk)
        assert damage() == expected


def test_a_record_behind_damage_is_found_wherever_a_chunk_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(scanner, "CHUNK", 4096)
    for length in range(4076, 4100):
        assert salvaged(b"x" * length + THREE[0]) == THREE[0]


# ---- --salvage -----------------------------------------------------------------------------------


def test_salvage_reports_what_it_kept_and_dropped(aof: Path, tmp_path: Path) -> None:
    aof.write_bytes(THREE[0] + b"one" + THREE[1] + b"three" + THREE[2] + b"*2\r\n")
    status, lines = lines_of("--salvage", tmp_path / "out", aof)
    first, second, third = accumulate(map(len, THREE))
    assert status == 0
    assert [line.split(":")[1].split(" (")[0] for line in lines if "Damaged" in line] == [
        f" {first}..{first + 3}",
        f" {second + 3}..{second + 8}",
        f" {third + 8}..{third + 12}",
    ]
    assert (
        f"Salvaged 3 records, {third} bytes, into {tmp_path / 'out'}; skipped 12 bytes in 3 places"
    ) in lines
    assert lines[-1] == "AOF is not valid"
    assert lines_of(tmp_path / "out")[0] == 0


def test_salvage_overwrites_nothing(aof: Path, tmp_path: Path) -> None:
    taken = tmp_path / "taken"
    taken.write_bytes(b"precious")
    (tmp_path / "link").symlink_to("nowhere")
    before = names(tmp_path)
    for out in (taken, aof, tmp_path / "link"):
        assert lines_of("--salvage", out, aof) == (1, [f"File exists: {out}"])
    assert taken.read_bytes() == b"precious"
    assert aof.read_bytes() == b"".join(THREE)
    assert names(tmp_path) == before


def test_salvage_writes_no_empty_file(tmp_path: Path) -> None:
    path = tmp_path / "aof"
    path.write_bytes(b"nothing good here")
    assert lines_of("--salvage", tmp_path / "out", path)[0] == 1
    assert names(tmp_path) == ["aof"]


def test_salvage_leaves_nothing_behind_when_the_disk_is_full(
    aof: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "copy_file_range", fail)
    assert lines_of("--salvage", tmp_path / "out", aof)[0] == 1
    assert names(tmp_path) == [aof.name]


# ---- large files, in a process of its own --------------------------------------------------------


def run(*arguments: str | Path) -> tuple[int, list[str], int]:
    """Run the tool in a process; return its exit status, lines and peak memory in KiB."""
    # Not ru_maxrss: a new process inherits that of its parent.
    code = (
        "import sys; from disque_trio.aof.check import main; status = main();"
        "print(open('/proc/self/status').read().split('VmHWM:')[1].split()[0]); sys.exit(status)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)], capture_output=True, timeout=60
    )
    assert done.stderr == b""
    *lines, memory = done.stdout.decode().splitlines()
    return done.returncode, lines, int(memory)


@pytest.mark.slow
def test_a_big_file_with_a_damaged_middle_is_diagnosed_and_salvaged(tmp_path: Path) -> None:
    path, out, small = tmp_path / "aof", tmp_path / "out", tmp_path / "small"
    block = b"".join(load(i, queue=b"q%d" % (i % 7)) for i in range(10_000))
    half = block * (25_000_000 // len(block) + 1)
    damage = os.urandom(300_000)
    path.write_bytes(half + damage + half)
    small.write_bytes(THREE[0])
    size = path.stat().st_size
    assert size > 50_000_000

    least = run(small)[2]
    status, lines, memory = run(path)
    assert status == 1
    jobs = len(half) // len(block) * 10_000
    assert lines[0] == f"Good records: jobs={jobs * 2}, queues=7, deletes=0"
    assert lines[1].startswith(f"First bad record: offset={len(half)} ")
    assert lines[2].startswith(f"Damaged: {len(half)}..{len(half) + len(damage)} ")
    assert f"AOF analyzed: size={size}, ok_up_to={len(half)}, diff={size - len(half)}" in lines
    assert memory - least < 16 * 1024

    status, lines, memory = run("--salvage", out, path)
    assert status == 0
    assert memory - least < 16 * 1024
    assert out.read_bytes() == half * 2


def test_the_script_in_a_checkout_does_the_same(aof: Path) -> None:
    done = subprocess.run(
        [SCRIPT, aof], capture_output=True, env={**os.environ, "PYTHON": sys.executable}
    )
    assert (done.returncode, done.stdout.decode().splitlines()) == lines_of(aof)


# ---- jobs with trailers -------------------------------------------------------------------------

FULL = full_trailer().pack()


def with_trailer(number: int, tail: bytes = FULL, body: bytes = b"body") -> bytes:
    return loadjob(job_with(tail, 1 << 31, [NODE], body, id=job_id(number)))


def write(directory: Path, *parts: bytes) -> Path:
    path = directory / "aof"
    path.write_bytes(b"".join(parts))
    return path


def test_jobs_with_trailers_are_counted_where_there_are_any(tmp_path: Path) -> None:
    path = write(tmp_path, load(1), with_trailer(2), load(3), with_trailer(4), deljob(job_id(4)))
    status, lines = lines_of(path)
    assert (status, lines[0]) == (0, "Good records: jobs=4, queues=2, deletes=1, trailers=2")
    assert lines_of(write(tmp_path, *THREE))[1][0] == "Good records: jobs=2, queues=2, deletes=1"


def test_trailers_are_listed_with_all_but_the_values_of_headers(tmp_path: Path) -> None:
    path = write(tmp_path, load(1), with_trailer(2), with_trailer(3, b"\0\0\0\0\1"))
    status, lines = lines_of("--trailers", path)
    first = "D-00000000-aaaaaaaaaaaaaaaaaaaaaaaa-05a3"
    assert status == 0
    assert lines[:2] == [
        f"Trailer: offset={len(load(1))} id={job_id(2).decode()} queue='q' "
        "headers='content-type','traceparent' key-until=1800000000000 updated=3 "
        "group='tenant 4' note='asked for by Ann' unique-key='order 17' added-to='old queue' "
        "attempts=3 last-reason='try later' dead-from='mail' dead-why=refused dead-attempts=4 "
        f"dead-reason='no such address' first-id={first} unknown fields=200",
        f"Trailer: offset={len(load(1) + with_trailer(2))} id={job_id(3).decode()} queue='q'",
    ]
    assert "text/plain" not in "\n".join(lines)
    assert lines_of(path)[1] == lines[2:]


def test_what_is_listed_cannot_disturb_a_terminal(tmp_path: Path) -> None:
    trailer = Trailer()
    trailer.key = b"\x1b[2J\n\xff"
    (line, *_) = lines_of("--trailers", write(tmp_path, with_trailer(1, trailer.pack())))[1]
    assert line.endswith(r"key='\x1b[2J\n\\xff'")


def test_a_trailer_of_a_later_version_and_an_ending_are_listed(tmp_path: Path) -> None:
    trailer = Trailer()
    trailer.ending = Ending(CANCELLED)
    later = b"later\5\0\0\0\2"
    path = write(tmp_path, with_trailer(1, trailer.pack()), with_trailer(2, later))
    lines = lines_of("--trailers", path)[1]
    assert lines[0].endswith("ending=cancelled")
    assert lines[1].endswith("version=2 (5 bytes of a later version of disque-trio)")


@pytest.mark.parametrize("lie", [b"\xff\xff\xff\xff\1", b"\0\0\0\0\0", b"\1\0\0\6\0\0\0\1"])
def test_a_malformed_trailer_is_damage_at_its_offset_and_alone(tmp_path: Path, lie: bytes) -> None:
    bad = with_trailer(2, lie, b"")
    path = write(tmp_path, load(1), bad, with_trailer(3), load(4))
    status, lines = lines_of(path)
    start, end = len(load(1)), len(load(1) + bad)
    assert status == 1
    assert lines[0] == "Good records: jobs=3, queues=2, deletes=0, trailers=1"
    assert lines[1].startswith(f"First bad record: offset={start} ")
    assert "trailer" in lines[1]
    assert lines[2].startswith(f"Damaged: {start}..{end} ")
    status, lines = lines_of("--salvage", tmp_path / "new", "--trailers", path)
    assert status == 0
    assert len([line for line in lines if line.startswith("Trailer: ")]) == 1
    assert (tmp_path / "new").read_bytes() == load(1) + with_trailer(3) + load(4)


@pytest.mark.parametrize("size", [10, CHUNK + 10])
def test_jobs_with_trailers_are_found_behind_damage_of_any_kind(tmp_path: Path, size: int) -> None:
    good = with_trailer(2, body=b"x" * size)
    path = write(tmp_path, load(1), b"garbage\r\n", good, load(3))
    status, lines = lines_of(path)
    assert status == 1
    assert lines[0] == "Good records: jobs=3, queues=2, deletes=0, trailers=1"
    start = len(load(1))
    assert lines[2].startswith(f"Damaged: {start}..{start + 9} ")
