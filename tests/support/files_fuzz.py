"""A node with all of its files, and damage to them."""

import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final
from zlib import crc32

from disque_trio.aof.loader import Loader
from disque_trio.cluster.membership import Membership
from disque_trio.config import Config
from disque_trio.node.progress_file import ProgressFile
from disque_trio.node.shared_file import (
    SharedFile,
    bindings_file,
    pauses_file,
    policies_file,
    schedules_file,
)
from disque_trio.protocol.bus import PacketWriter
from disque_trio.protocol.progress import MAGIC, pack_block
from tests.support.fuzzing import damaged
from tests.support.node_bench import START, Bench

SHARED: Final = ("policies", "schedules", "bindings", "pauses")
_TAKEN: Final = 1 << 31  # in the length of a block of ids
PIECES: Final = (
    b"\n", b"\r\n", b"\0", b'"', b"'", b"\\", b" ", b"#", b"-1", b"0", b"65536", b"4294967296",
    b"18446744073709551616", b"9" * 400, b"\xff" * 8, b"clock 281474976710656\n", b"policy ",
    b"deleted ", b"newer ", b"schedule ", b"binding ", b"pause ", b"$", b"*3\r\n", b"LOADJOB",
    b"DELJOB", b"D-00000000-" + b"0" * 24 + b"-05a1", b"f" * 40, b"F" * 40, b"\xc3\x28",
)  # fmt: skip


class FiledNode:
    """A node that keeps its files in a directory, started as the server starts it.

    Attributes:
        warnings: what it has logged.
        skipped: lines that it could not read.

    Raises:
        AofError: the append-only file is damaged.
    """

    def __init__(self, directory: Path, now: int = START) -> None:
        self.directory = directory
        self.warnings: list[str] = []
        self.skipped: list[str] = []
        membership = Membership(
            PacketWriter(b"a" * 40, 1),
            lambda *args: None,
            SimpleNamespace(),  # type: ignore[arg-type]
        )
        self.bench = bench = Bench(peers=membership, id=b"a" * 40)
        bench.now = bench.node.now = now
        config = Config(
            {
                "cluster-config-file": str(directory / "nodes.conf"),
                "appendonly": True,
                "appendfilename": str(directory / "aof"),
            }
        )
        log: Any = SimpleNamespace(warning=self._warn, notice=lambda text, **fields: None)
        node = bench.node
        self.files: list[SharedFile] = [
            policies_file(config, node, membership, log),
            schedules_file(config, node, log),
            bindings_file(config, node, log),
            pauses_file(config, node, log),
        ]
        self._progress = ProgressFile(node, config, log)
        self._progress.load(False)
        try:
            for _ in Loader(str(directory / "aof"), node, False).steps():
                pass
            node.recovery.finish()
            node.updates.resume()
            node.journaling = True
            self._progress.start()
            node.queue_pauses.resume()
        except BaseException:
            self._progress.close()
            raise

    def _warn(self, text: str, **fields: object) -> None:
        self.warnings.append(text)
        if "line" in fields:
            self.skipped.append(str(fields["line"]))

    def advance(self, seconds: float) -> None:
        """Let time pass, and write what is to be written."""
        self.bench.advance(seconds)
        self.bench.node.commit()
        self.bench.node.replied()

    def stop(self, cleanly: bool = True) -> None:
        """Write what the append-only file gets, and end."""
        self.bench.node.commit()
        with (self.directory / "aof").open("ab") as aof:
            aof.write(b"".join(self.bench.node.journal))
        if cleanly:
            for file in self.files:
                file.close()
            self._progress.stop(False)
        self._progress.close()

    def shared(self) -> dict[str, dict[bytes, bytes]]:
        """What it shares with others: the packed form of each entry, by file and name."""
        node = self.bench.node
        known: tuple[Any, ...] = (
            node.policies,
            node.ticks.schedules,
            node.topics.bindings,
            node.queue_pauses.known,
        )
        return {
            what: {name: entry.packed for name, entry in versions.entries.items()}
            for what, versions in zip(SHARED, known, strict=True)
        }


def use(node: FiledNode) -> None:
    """Let a client use everything that gets into files."""
    bench = node.bench
    for number in range(6):
        bench("QSET", f"policy.{number}.*", "ATTEMPTS", 3, "DEAD", "lost", "RATE", "9/m")
        bench("QSET", f"limits.{number}", "MAXLEN", 10, "BACKOFF", 1, 5, "GROUPS", "fair")
        more = (
            "TTL",
            99,
            "RETRY",
            9,
            "REPLICATE",
            1,
            "DEADTTL",
            9,
            "MAXBYTES",
            9,
            "ACTIVE",
            9,
            "DELAY",
            1,
        )
        bench("QSET", f"more.{number}", *more, "RATE", "9/s", "BURST", 9)
        groups = ("GROUPACTIVE", 9, "GROUPRATE", "9/s", "GROUPBURST", 9)
        bench("QSET", f"groups.{number}", "GROUPS", "fair", *groups)
        bench("CRON", "SET", f"every.{number}", "@every 1d", "TZ", "UTC", "q", "b", "RETRY", 5)
        bench("CRON", "SET", f"times.{number}", "*/5 1-3 * * 1", "CATCHUP", "q", "b c\n\0\xff")
        bench("BIND", f"topic.{number}.*", f"bound.{number}")
        bench("PAUSE", f"paused.{number}", "in", "bcast")
    bench.node.users.set(b"ann", (b"on", b"nopass", b"~*", b"+@all"))
    client = bench.client()
    assert bench.ask(client, "AUTH", "ann", "x") == b"OK"
    for number in range(3):
        bench.ask(client, "CRON", "SET", f"mine.{number}", "@every 1d", "q", "b")
        bench.ask(client, "BIND", f"mine.{number}.*", f"bound.{number}")
    bench.disconnect(client)
    bench("QDEL", "limits.0")
    bench("CRON", "DEL", "every.0")
    bench("CRON", "PAUSE", "every.1")
    bench("UNBIND", "topic.0.*", "bound.0")
    bench("PAUSE", "paused.0", "none", "bcast")
    ids = []
    for number in range(12):
        options: list[str | int] = [
            "RETRY",
            1 + number % 3,
            "TTL",
            5_000,
            "GROUP",
            f"g{number % 2}",
        ]
        options += ["PRIORITY", number % 8, "HEADERS", 1, "h", number]
        options += ["UNIQUE", f"key {number}", "FOR", 999] if number % 3 == 0 else []
        ids.append(bench.add(f"q{number % 2}", f"body {number}", *options))
    node.advance(0.1)
    bench.get_all("q0", "q1", count=6)
    node.advance(0.1)
    for id, command in zip(ids, ("NACK", "WORKING", "ACKJOB", "CANCEL", "DELJOB"), strict=False):
        bench(command, id)
        node.advance(0.1)
    bench("NACK", ids[6], "REASON", "it broke")
    bench("ACKJOB", ids[7], "RESULT", "done")
    bench("UPDATEJOB", ids[8], "BODY", "changed")
    bench("PROMOTE", ids[9])
    node.advance(3)


def damaged_file(data: bytes, rng: random.Random) -> bytes:
    """``data`` as a bad disk, or a bad editor, may leave it."""
    if data.startswith(MAGIC) and rng.random() < 0.8:
        return damaged_block(data, rng)
    lines = data.splitlines(keepends=True)
    what = rng.random()
    if what < 0.6 or len(lines) < 3:
        return damaged(data, rng, PIECES)
    at, other = rng.randrange(len(lines)), rng.randrange(len(lines))
    if what < 0.7:
        del lines[at]
    elif what < 0.8:
        lines.insert(at, lines[other])
    elif what < 0.9:
        words = lines[at].split(b" ")
        words[rng.randrange(len(words))] = rng.choice(PIECES)
        lines[at] = b" ".join(words)
    else:
        lines[at], lines[other] = lines[other], lines[at]
    return b"".join(lines)


def damaged_block(data: bytes, rng: random.Random) -> bytes:
    """The progress file ``data`` with damage in a block, whose checksum is right, as a release with
    a bug may leave it."""
    blocks: list[tuple[bool, bytes]] = []
    at = len(MAGIC)
    while at < len(data):
        size = int.from_bytes(data[at : at + 4], "little")
        taken = size >= _TAKEN
        size += 8 - _TAKEN if taken else 0
        blocks.append((taken, data[at + 8 : at + 8 + size]))
        at += 8 + size
    chosen = rng.randrange(len(blocks))
    taken, good = blocks[chosen]
    content = bytearray(good)
    if rng.random() < 0.7:  # numbers that are as long as before
        for _ in range(rng.choice((1, 2, 4))):
            size = rng.choice((1, 2, 4, 8))
            start = rng.randrange(len(content))
            piece = rng.choice((b"\xff", b"\0", b"\x7f", b"\x80", rng.randbytes(1))) * size
            content[start : start + size] = piece[: len(content) - start]
        blocks[chosen] = taken, bytes(content)
    else:
        blocks[chosen] = taken, damaged(good, rng, PIECES)
    return MAGIC + b"".join(_sealed(*block) for block in blocks)


def _sealed(taken: bool, content: bytes) -> bytes:
    """A block with this ``content``; ``taken``: a time, and ids of jobs that clients got then."""
    if not taken or len(content) < 8:
        return pack_block([content])
    head = (_TAKEN + len(content) - 8).to_bytes(4, "little")
    return head + crc32(head + content[:8]).to_bytes(4, "little") + content


def damaged_line(data: bytes, rng: random.Random) -> tuple[bytes, bytes, bytes]:
    """``data`` with damage in one line, and without this line; and the line."""
    lines = data.splitlines(keepends=True)
    at = rng.randrange(len(lines))
    without = b"".join(lines[:at] + lines[at + 1 :])
    bad = damaged(lines[at][:-1], rng, PIECES).replace(b"\n", b" ")
    return b"".join([*lines[:at], bad + b"\n", *lines[at + 1 :]]), without, bad
