"""Pages whose commands are run as written. Only waiting is added, where a reader would look
again."""

import re
from pathlib import Path

import pytest

from tests.support.commands import run_command
from tests.support.doc_blocks import block
from tests.support.documented import ID, IN_PLACE, Type, Typist, commands, section, shape, until
from tests.support.harness import LiveNode

pytestmark = pytest.mark.live


def joined(port: int, others: int) -> str:
    return until(f"redis-cli -p {port} CLUSTER INFO | grep -q reachable_nodes:{others}")


def test_the_tutorial(type_in: Type, tmp_path: Path) -> None:
    [program] = re.findall(
        r"^```python\n(.*?)```", section("tutorial.md", "Write a worker"), re.MULTILINE | re.DOTALL
    )
    printed = type_in(
        "tutorial.md",
        "Start a node",
        "Add a job, take it, acknowledge it",
        f"  cat > /tmp/disque/shop.py <<'END'\n{program}END\n",
        "Write a worker",
        "Make a cluster",
        joined(7711, 2) + joined(7712, 2) + joined(7713, 2),
        "Kill one of three nodes",
        joined(7711, 2) + joined(7712, 2) + joined(7713, 2),
        "Kill two of three nodes",
        joined(7712, 2),
        "Look at it",
        until("curl -sf http://127.0.0.1:8711/health") + "  curl -sf http://127.0.0.1:8711/\n",
        "Stop everything",
    )
    again = rf"greetings\n({ID})\nhello again\n"
    assert re.search(rf"PONG\n{ID}\ngreetings\n{ID}\nhello world\n{again}{again}1\n", printed)
    assert len(set(re.findall(again, printed))) == 1
    assert "\nsent to ann@example.org\n" in printed
    assert len(re.findall(rf"{ID}\ngreetings\n{ID}\none node is down\n", printed)) == 1
    assert len(re.findall(rf"{ID}\ngreetings\n{ID}\nhello cluster\n", printed)) == 1
    assert re.search(r"ok.*<!doctype html>.*</html>", printed, re.DOTALL | re.IGNORECASE)
    assert not (tmp_path / "disque").exists()


def test_a_worker_is_started_and_looked_at(type_in: Type) -> None:
    title = "disque-worker: running tasks"
    [program] = re.findall(
        r"^```python\n(.*?)```", section("worker.md", title), re.MULTILINE | re.DOTALL
    )[:1]
    url, worker, *rest = commands("worker.md", title).splitlines()[:5]
    assert worker.startswith("disque-worker shop:app")
    health = until("curl -sf http://127.0.0.1:9100/healthz | grep -q '2 of 2'")
    printed = type_in(
        "worker.md",
        IN_PLACE + f"  cat > shop.py <<'END'\n{program}END\n",
        "  disque-server --port 7711 --bind 127.0.0.1 --dir . --daemonize yes --pidfile $PWD/pid\n",
        f"  {url}\n{worker} > worker.log &\n" + health,
        "  " + "\n".join(rest) + "\n  kill $!\n",
    )
    assert "paid\n" in printed
    assert "ok: 2 of 2 processes serve, 0 tasks run" in printed


def test_a_node_with_certificates(type_in: Type) -> None:
    server, ping = commands("certificates.md", "Use them").splitlines()
    printed = type_in(
        "certificates.md",
        IN_PLACE,
        "Make them",
        f"  {server} > node.log &\n" + until(f"{ping} 2>/dev/null | grep -q PONG"),
        f"  {ping}\n",
        "Renew them",
        "When they end",
        f"  {ping}\n  ! {ping.replace('ca.pem', 'old-ca.pem')} 2>&1\n  kill $!\n",
    )
    found = [line for line in printed.splitlines() if line in ("PONG", "OK")]
    assert found == ["PONG", *["OK"] * 4, "PONG"]
    assert "notAfter=" in printed


def test_a_log_is_rotated(type_in: Type, tmp_path: Path) -> None:
    level = block("docs/logs.md", "redis-cli -p 7711 CONFIG SET loglevel").lines()
    printed = type_in(
        "logs.md",
        "  mkdir -p /tmp/disque/a\n"
        "  .venv/bin/disque-server --port 7711 --bind 127.0.0.1 --dir /tmp/disque/a --daemonize yes"
        " --pidfile /tmp/disque/a/pid --logfile /tmp/disque/a/log\n",
        "".join(f"  {line}\n" for line in level),
        "Rotation",
    )
    assert printed == "OK\nOK\n"
    logs = tmp_path / "disque" / "a"
    assert (logs / "log.1").stat().st_size > 0
    assert (logs / "log").exists()


def test_pressure_in_five_minutes(tmp_path: Path, redis_port: str) -> None:
    lines = block("packages/pressure/docs/pressure.md", "$ pressure create").lines()
    assert len(lines) == 4
    script = f"  export REDIS_PORT={redis_port}\n{IN_PLACE}" + "\n".join(lines)
    others = {"/tmp/disque": str(tmp_path / "disque"), "1000000": "20000"}  # a million takes long
    assert Typist(tmp_path, others).type(script) == "20000\n"


def test_the_page_on_clusters(type_in: Type) -> None:
    three, dead = commands("cluster.md", "Three nodes on one machine").split(
        "redis-cli -p 7711 ADDJOB"
    )
    printed = type_in(
        "cluster.md",
        f"  {three}",
        joined(7711, 2) + joined(7712, 2) + joined(7713, 2),
        f"  redis-cli -p 7711 ADDJOB{dead}",
        "A secret for the bus",
        "  redis-cli -p 7721 CLUSTER NODES\n",
        "  echo WHO THEY ARE\n",
        "Nodes that show who they are",
    )
    printed, _, keys = printed.partition("WHO THEY ARE\n")
    assert [word for word in keys.split() if word in ("myself", "pinned", "expelled")] == [
        *["myself", "pinned"],
        *["myself", "expelled"],
    ]
    assert re.search(rf"\n{ID}\ngreetings\n{ID}\nhello world\n", printed)
    assert "reachable_nodes:1\n" in printed.replace("\r", "")
    assert re.search(r"cluster-secret\n\(redacted\)\n", printed)
    assert "fail" not in printed.rpartition("(redacted)")[2]


def test_copies_are_made_again_after_a_node_is_lost(type_in: Type) -> None:
    three = commands("cluster.md", "Three nodes on one machine").split("redis-cli -p 7711 ADDJOB")[
        0
    ]
    adds = "".join(
        f"  redis-cli -p {port} ADDJOB q x 5000 REPLICATE 2 > /dev/null\n"
        for port in (7711, 7712, 7713)
    )
    lost = "  redis-cli -p 7713 SHUTDOWN\n" + until(
        "redis-cli -p 7711 CLUSTER NODES | grep -q fail"
        " && redis-cli -p 7712 CLUSTER NODES | grep -q fail"
    )
    make, again = commands("lost-node.md", "Make the copies again").splitlines(keepends=True)
    printed = type_in(
        "lost-node.md",
        f"  {three}",
        joined(7711, 2) + joined(7712, 2) + joined(7713, 2) + adds + lost,
        "Forget it",
        f"  echo BEFORE\n  {make} || true\n  echo AFTER\n  {again}".replace("\n ||", " ||"),
    )
    assert "DISQUE CRITICAL - " in printed.partition("BEFORE\n")[0]
    before, after = printed.partition("BEFORE\n")[2].split("AFTER\n")
    assert before == "All jobs have their copies.\n" or re.search(
        r"^q +[123]$", before, re.MULTILINE
    )
    assert after == "All jobs have their copies.\n"


def test_a_controlled_restart_and_a_quick_one(type_in: Type) -> None:
    start = (
        "  mkdir -p /tmp/disque && touch /tmp/disque/disque.conf\n"
        "  node() {\n"
        "  .venv/bin/disque-server /tmp/disque/disque.conf --port 7711 --bind 127.0.0.1"
        " --dir /tmp/disque --daemonize yes --pidfile /tmp/disque/pid\n}\n"
    )
    jobs = "  redis-cli -p 7711 ADDJOB q body 0 RETRY 0\n"
    printed = type_in(
        "durability.md",
        start + "  node\n" + jobs,
        "A controlled restart",
        until("[ ! -e /tmp/disque/pid ]") + "  node\n  redis-cli -p 7711 QLEN q\n",
        "  " + commands("durability.md", "RESTART").rstrip() + " || true\n",  # it is cut off
        until("redis-cli -p 7711 PING | grep -q PONG") + "  redis-cli -p 7711 QLEN q\n",
        "  redis-cli -p 7711 CONFIG GET aof-enqueue-jobs-once\n",
        "  redis-cli -p 7711 SHUTDOWN\n" + until("[ ! -e /tmp/disque/pid ]"),
    )
    assert re.search(rf"^{ID}\nOK\nOK\n(.*\n)?1\n", printed)
    assert "\n1\naof-enqueue-jobs-once\nno\n" in printed


def test_the_first_commands_of_the_command_line(shared_node: LiveNode) -> None:
    told: dict[str, str] = {}
    for command, shown in block("docs/cli.md", "$ disque addjob").typed():
        words = [told.get(word, word) for word in command.split()]
        assert words.pop(0) == "disque"
        done = run_command("disque", "-p", str(shared_node.port), *words, text=True)
        lines = done.stdout.splitlines()
        for there, here in zip(shown, lines, strict=True):
            if re.fullmatch(ID, there):
                assert re.fullmatch(ID, here)
                assert told.setdefault(there, here) == here
            else:
                assert there == here
    assert shared_node.ask("JSCAN") == [b"0", []]


def test_a_damaged_file_is_salvaged(type_in: Type, tmp_path: Path) -> None:
    page = "docs/check-aof.md"
    check, told = block(page, "$ disque-check-aof disque.aof").typed()[0]
    salvage = [f"  {line}\n" for line in block(page, "$ disque-check-aof --salvage").lines()]
    assert len(salvage) == 3
    node = (
        "  .venv/bin/disque-server --port 7711 --bind 127.0.0.1 --dir /tmp/disque"
        " --appendonly yes --daemonize yes --pidfile /tmp/disque/pid\n"
    )
    add = "  for n in 1 2 3; do redis-cli -p 7711 ADDJOB q body$n 0; done\n"
    stop = "  redis-cli -p 7711 SHUTDOWN\n" + until("[ ! -e /tmp/disque/pid ]")
    damage = "  sed -i 's/body2/bo/' /tmp/disque/disque.aof\n"
    damage += "  rm /tmp/disque/disque.aof.sums\n"  # as of a file of an older release
    printed = type_in(
        "check-aof.md",
        f"  mkdir /tmp/disque\n{node}{add}{stop}{damage}",
        "  top=$PWD\n  export PATH=$PWD/.venv/bin:$PATH\n  cd /tmp/disque\n",
        f"  ! {check}\n",
        *salvage,
        f"  cd $top\n{node}  redis-cli -p 7711 INFO jobs | grep registered\n{stop}",
    )
    assert shape("\n".join(told)) in shape(printed)
    assert "registered_jobs:2" in printed
    assert (tmp_path / "disque" / "disque.aof.damaged").exists()
