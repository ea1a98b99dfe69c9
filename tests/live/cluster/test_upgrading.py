"""docs/upgrading.md and docs/nodes.md: their commands, as typed, on a cluster."""

import re
from itertools import combinations
from pathlib import Path

from tests.support.doc_blocks import block
from tests.support.documented import Typist, commands, until
from tests.support.harness import free_port

START = """\
mkdir -p /tmp/disque/{node}
.venv/bin/disque-server --port {port} --bind 127.0.0.1 --dir /tmp/disque/{node} --appendonly yes \
--daemonize yes --pidfile /tmp/disque/{node}/pid
until redis-cli -p {port} PING | grep PONG; do sleep 0.1; done
"""
NODES = {"a": "7711", "b": "7712", "c": "7713"}


def test_nodes_are_restarted_and_replaced_one_at_a_time(tmp_path: Path) -> None:
    others = {port: str(free_port()) for port in (*NODES.values(), "7714")}
    others["/tmp/disque"] = str(tmp_path / "disque")
    before = "".join(START.format(node=node, port=port) for node, port in NODES.items())
    for one, other in combinations(NODES.values(), 2):
        before += f"redis-cli -p {one} CLUSTER MEET 127.0.0.1 {other}\n"
    before += "until [ $(redis-cli -p 7711 HELLO | grep -c '^1$') -ge 4 ]; do sleep 0.1; done\n"
    add = "redis-cli -p {} ADDJOB q '{}' 5000 REPLICATE 2 RETRY 60\n"
    take = "redis-cli -p {} GETJOB TIMEOUT 30000 FROM q\n"
    rolling = commands("upgrading.md", "Rolling to a new version")
    joining, leaving = (commands("nodes.md", f"Scaling {way}") for way in ("up", "down"))
    assert rolling.count("RESTART") == 1
    assert leaving.count("cluster leave") == 1
    took = take.format("7713").rstrip() + " | sed -n 2p | xargs redis-cli -p 7711 ACKJOB\n"
    printed = Typist(tmp_path, others).type(
        before
        + add.format("7711", "kept by a restart")
        + rolling
        + took
        + 'PATH="$PWD/.venv/bin:$PATH"\n'
        + joining
        + leaving
        + add.format("7714", "at the new one")
        + take.format("7712")
        + "redis-cli -p 7714 CLUSTER INFO; redis-cli -p 7711 CLUSTER INFO\n"
    )
    assert "kept by a restart" not in printed  # it was acknowledged
    assert "at the new one" in printed
    assert printed.replace("\r", "").count("\ncluster_known_nodes:3\n") == 2


def test_an_earlier_release_finds_only_what_it_knows(tmp_path: Path) -> None:
    others = {"7711": str(free_port()), "/tmp/disque": str(tmp_path / "disque")}
    ask = "redis-cli -p 7711 "
    before = "PATH=$PWD/.venv/bin:$PATH\n" + START.format(node="a", port="7711")
    for request in (
        "QSET q ATTEMPTS 3 DEAD dead",
        "PAUSE other in",
        "ADDJOB q plain 0",
        "ADDJOB q keyed 0 UNIQUE key FOR 500",
        "ADDJOB headed x 0 HEADERS 1 name value",
    ):
        before += f"{ask}{request}\n"
    for queue in ("q", "headed"):
        before += f"{ask}GETJOB COUNT 9 FROM {queue} | grep D- | tail -1 | xargs {ask}ACKJOB\n"
    printed = Typist(tmp_path, others).type(
        before + "echo ---\n" + commands("upgrading.md", "Back to an earlier release")
    )
    told = printed.partition("---\n")[2]
    assert "Good records: jobs=1, queues=1, deletes=0\n" in told  # no trailers
    data = (tmp_path / "disque" / "a" / "disque.aof").read_bytes()
    assert re.findall(rb"\r\n([A-Z]+)\r\n", data) == [b"LOADJOB"]


def test_a_node_is_replaced_in_place(tmp_path: Path) -> None:
    """Ours stands for the C node, whose files are the same."""
    stop, check, start, hello = block("docs/upgrading.md", "redis-cli -p 7711 SHUTDOWN\n").lines()
    others = {port: str(free_port()) for port in ("7711", "7712")}
    others |= {place: str(tmp_path / place[1:]) for place in ("/etc/disque", "/tmp/disque")}
    before = (
        "PATH=$PWD/.venv/bin:$PATH\nmkdir -p /etc/disque /tmp/disque/a\n"
        "cat > /etc/disque/disque.conf <<END\n"
        "port 7711\nbind 127.0.0.1\nappendonly yes\ndir /tmp/disque/a\nEND\n"
    )
    up = until("redis-cli -p 7711 PING | grep -q PONG")
    before += f"{start} > /tmp/disque/log &\n{up}" + START.format(node="b", port="7712")
    before += "redis-cli -p 7711 CLUSTER MEET 127.0.0.1 7712\n"
    joined = until("[ $(redis-cli -p 7712 HELLO | grep -c '^1$') -ge 3 ]")
    before += f"{joined}redis-cli -p 7711 ADDJOB q body 5000 REPLICATE 2 RETRY 60\n"
    before += "redis-cli -p 7711 CONFIG SET aof-enqueue-jobs-once yes\n"
    before += "redis-cli -p 7711 CONFIG REWRITE\n"
    printed = Typist(tmp_path, others).type(
        f"{before}{stop}\nwait $!\n{check}\n{start} > /tmp/disque/log &\n{up}{joined}"
        f"echo ---\n{hello}\necho ---\nredis-cli -p 7711 QLEN q\nkill $!\n"
    )
    _, told, length = printed.split("---\n")
    assert told.split().count("1") == 3  # the version, and the priorities of two nodes
    assert length == "1\n"
