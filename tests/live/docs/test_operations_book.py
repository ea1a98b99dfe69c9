"""docs/backup.md: what operators type when nodes and jobs are lost."""

import re

import pytest

from tests.support.doc_blocks import blocks
from tests.support.documented import Type, commands

pytestmark = pytest.mark.live

PATH = "  export PATH=$PWD/.venv/bin:$PATH\n"
NODES = {"a": 7711, "b": 7712, "c": 7713}


def three() -> str:
    """Commands that start a cluster of three nodes."""
    script = PATH
    for name, port in NODES.items():
        script += (
            f"  mkdir -p /tmp/disque/{name}\n"
            f"  disque-server --port {port} --bind 127.0.0.1 --dir /tmp/disque/{name}"
            f" --appendonly yes --daemonize yes --pidfile /tmp/disque/{name}/pid"
            f" --logfile /tmp/disque/{name}/log\n"
        )
    addresses = " ".join(f"127.0.0.1:{port}" for port in NODES.values())
    return script + f"  disque cluster create {addresses}\n"


def add(queue: str, count: int, options: str = "") -> str:
    return (
        f"  for n in $(seq {count}); do redis-cli -p 7711 ADDJOB {queue} job$n 5000 {options}"
        " > /tmp/disque/added; done\n"
    )


def test_a_cluster_that_serves_is_backed_up_and_restored(type_in: Type) -> None:
    backup = commands("backup.md", "Make a backup")
    printed = type_in(
        "backup.md",
        three() + "  redis-cli -p 7711 QSET mail ATTEMPTS 7\n" + add("mail", 20, "REPLICATE 2"),
        "  (while redis-cli -p 7712 ADDJOB busy x 5000; do :; done) > /tmp/disque/load & load=$!\n",
        "  " + backup,
        "  kill $load\n  echo BACKED UP\n",
        add("mail", 5, "REPLICATE 2"),
        "  redis-cli -p 7712 QPURGE busy\n",
        "Restore a cluster",
        "  redis-cli -p 7713 QGET mail\n  disque -p 7711 jobs mail --limit 100 | grep -c fresh\n",
    )
    made, _, restored = printed.partition("BACKED UP\n")
    assert len(re.findall(r"127\.0\.0\.1:\d+: .* in /", made)) == 3
    assert "AOF is not valid" not in made
    assert re.search(r"^DISQUE OK - 3 of 3 nodes", restored, re.MULTILINE)
    assert re.search(r"^mail +20 ", restored, re.MULTILINE)
    assert re.search(r"attempts\n7\n", restored)
    assert restored.endswith("\n20\n")


def test_a_node_is_restored(type_in: Type) -> None:
    printed = type_in(
        "backup.md",
        three() + add("mail", 10, "REPLICATE 1"),
        "Make a backup",
        add("mail", 1, "REPLICATE 1") + "  echo BACKED UP\n",
        "Restore a node",
        "  redis-cli -p 7711 QLEN mail\n",
    )
    restored = printed.partition("BACKED UP\n")[2].replace("\r", "")
    assert "registered_jobs:10\nDISQUE OK - 3 of 3 nodes" in restored
    assert restored.endswith("\n10\n")


def test_a_queue_that_was_purged_comes_back(type_in: Type) -> None:
    printed = type_in(
        "backup.md",
        three() + add("mail", 30, "REPLICATE 2 HEADERS 1 user ann"),
        "Make a backup",
        "  redis-cli -p 7712 QPURGE mail\n",
        "A queue was purged by mistake",
        "  disque -p 7711 jobs mail --header user=ann --limit 100 | grep -c fresh\n",
        "  redis-cli -p 7711 GETJOB FROM mail\n",
    )
    assert len(re.findall(r"^exported \d+ jobs$", printed, re.MULTILINE)) == 3
    assert re.search(r"^mail +30 .* out", printed, re.MULTILINE)
    assert re.search(r"\n30\nmail\n", printed)


def test_every_block_of_these_pages_is_typed() -> None:
    titles = {
        block.titles[1] for page in ("backup", "nodes") for block in blocks(f"docs/{page}.md")
    }
    assert titles == {
        *("Make a backup", "Restore a node", "Restore a cluster", "A queue was purged by mistake"),
        *("Scaling up", "Scaling down"),
    }
