"""docs/symptoms.md: each trouble is made, found, cured and seen to be over, by the commands of its
section as they stand."""

import re
from pathlib import Path

import pytest

from tests.support import PYTHONPATH, ROOT
from tests.support.doc_blocks import blocks
from tests.support.documented import Type, commands, until
from tests.support.small_disk import small_disk

pytestmark = pytest.mark.live

PAGE = "symptoms.md"
PATH = "  export PATH=$PWD/.venv/bin:$PATH\n"
HERE = PATH + "  mkdir -p /tmp/disque\n  cd /tmp/disque\n"
NODES = {"a": 7711, "b": 7712, "c": 7713}
JOINED = "  disque cluster create 127.0.0.1:7711 127.0.0.1:7712 127.0.0.1:7713\n"
WELL = r"DISQUE OK - 3 of 3 nodes are well"


def node(name: str, options: str = "") -> str:
    """A command that starts a node."""
    return (
        f"  mkdir -p /tmp/disque/{name}\n  disque-server --port {NODES[name]} --bind 127.0.0.1"
        f" --dir /tmp/disque/{name} --appendonly yes{options} --daemonize yes"
        f" --pidfile /tmp/disque/{name}/pid --logfile /tmp/disque/{name}/log\n"
    )


def three(options: str = "") -> str:
    return PATH + "".join(node(name, options) for name in NODES) + JOINED


def add(queue: str, count: int, options: str = "", body: str = "job$n") -> str:
    return (
        f"  for n in $(seq {count}); do redis-cli -p 7711 ADDJOB {queue} {body} 5000 {options}"
        " > /tmp/disque/added; done\n"
    )


def quietly(command: str) -> str:
    return f"  {command} > /tmp/disque/said\n"


RESTARTED = "  redis-cli -p 7711 SHUTDOWN || true\n" + until("[ ! -e /tmp/disque/a/pid ]")

# How each trouble is made, and what its section prints, in this order.
SYMPTOMS: dict[str, tuple[str, list[str]]] = {
    "A job kills its workers": (
        three()
        + add("shop", 1, "RETRY 1")
        + "  for n in 1 2 3 4; do redis-cli -p 7711 GETJOB TIMEOUT 10000 FROM shop;"
        " redis-cli -p 7711 ADDJOB other x 5000; done > /tmp/disque/said\n",
        [
            r"^D-\S+ +shop +(running|retrying) +[45] .* job1",
            "exported 1 job",
            r"^1\nOK\nNo job",
        ],
    ),
    "A node is down": (
        three()
        + "  kill -9 $(cat /tmp/disque/c/pid)\n"
        + until("redis-cli -p 7711 INFO alarms | grep -q peer-lost"),
        [r"127.0.0.1:\d+3 +unreachable", r"kind=peer-lost,.*127.0.0.1:\d+3 does not answer"],
    ),
    "A queue is empty after a restart": (
        PATH
        + node("a")
        + add("mail", 10)
        + RESTARTED
        + "  rm /tmp/disque/a/disque.aof.progress\n"
        + node("a"),
        [
            "registered_jobs:10",
            "jobs_waiting_retry:10",
            r"^10$",
            "/disque/a$",
            "^yes$",
            r"^mail +10 ",
            "jobs_waiting_retry:0",
        ],
    ),
    "Jobs are in the wrong queue": (
        three() + add("mails", 12),
        [r"^mails +12 .* never", r"^12$", r"^mail +12 "],
    ),
    "Jobs become dead letters": (
        three()
        + quietly("redis-cli -p 7711 QSET mail ATTEMPTS 1 DEAD mail.dead")
        + add("mail", 1)
        + "  id=$(redis-cli -p 7711 GETJOB FROM mail | sed -n 2p)\n"
        + quietly("redis-cli -p 7711 NACK $id REASON 'no such address'"),
        [r"mail\.dead +dead +1 .*no such address", r"^1$", "^No job"],
    ),
    "Jobs run twice": (
        three()
        + add("mail", 1, "RETRY 1")
        + quietly("redis-cli -p 7711 GETJOB FROM mail")
        + quietly("redis-cli -p 7711 GETJOB TIMEOUT 10000 FROM mail")
        + quietly("redis-cli -p 7711 ADDJOB mail fresh 5000"),
        ["job1", r'"retry":1,"additional_deliveries":\d,"nacks":0', "OK"],
    ),
    "Latency is high": (
        PATH + node("a") + add("mail", 3),
        [r"^mail +3 ", "^OK$", "aof_rewrite_in_progress:0", "aof_delayed_fsync:", "^OK$"],
    ),
    "Memory is short": (
        three(" --maxmemory 1mb --paging no")
        + "  body=$(head -c 20000 /dev/zero | tr '\\0' x)\n"
        + "  while redis-cli -p 7711 ADDJOB mail $body 2000 | grep -q D-; do :; done\n"
        + until("redis-cli -p 7711 INFO alarms | grep -q memory"),
        ["of 1 MiB", "maxmemory_human:1.00M", "paging_active:0", r"^mail +\d\d", "OK", WELL],
    ),
    "One tenant floods a queue": (
        three() + add("mail", 50, "GROUP large") + add("mail", 2, "GROUP small"),
        [
            r"^large\n-1\n50\n",
            r"^small\n-1\n2\n",
            r"^127.0.0.1\n52\n52\n",
            "OK",
            "OK",
            r"mail +fresh",
        ],
    ),
    "Producers are refused": (
        three() + quietly("redis-cli -p 7711 PAUSE mail in bcast"),
        ["^in$", "^none$", "^D-"],
    ),
    "The cluster is split": (
        three()
        + "  kill -STOP $(cat /tmp/disque/c/pid)\n"
        + until("redis-cli -p 7711 INFO alarms | grep -q peer-lost")
        # The network is repaired while somebody looks.
        + "  (sleep 3; kill -CONT $(cat /tmp/disque/c/pid)) &\n",
        [r"^127.0.0.1:\d+3 fail", WELL],
    ),
    "Workers get nothing": (
        three()
        + quietly("redis-cli -p 7711 QSET mail RATE 1/h")
        + add("mail", 3)
        + quietly("redis-cli -p 7711 PAUSE mail out bcast"),
        [
            r"^mail +3 .* out$",
            r'"never_asked_for":true,"paused":"out"',
            "^No worker",
            "^none$",
            "^OK$",
            r"^mail +3 .* \S$",
        ],
    ),
}


def found_in_order(expected: list[str], printed: str) -> None:
    at = 0
    for pattern in expected:
        match = re.compile(pattern, re.MULTILINE).search(printed, at)
        assert match, f"{pattern}\nis not in\n{printed[at:]}"
        at = match.end()


@pytest.mark.parametrize("title", SYMPTOMS)
def test_a_symptom_is_found_and_cured(type_in: Type, title: str) -> None:
    trouble, expected = SYMPTOMS[title]
    printed = type_in(PAGE, trouble + "  echo TROUBLE\n", title, "  echo CURED\n")
    _, _, printed = printed.replace("\r", "").partition("TROUBLE\n")
    found_in_order([*expected, "^CURED$"], printed)


def test_the_first_look(type_in: Type) -> None:
    first = "".join(f"  {line}\n" for line in next(blocks(f"docs/{PAGE}")).lines())
    printed = type_in(PAGE, three() + add("mail", 3), first)
    found_in_order([WELL, r"^node +id ", r"^mail +3 "], printed)


def test_a_full_disk(type_in: Type, tmp_path: Path) -> None:
    (tmp_path / "disque").mkdir()
    with small_disk(tmp_path / "disque" / "a", 24):
        printed = type_in(
            PAGE,
            three(),
            "  head -c 40000000 /dev/zero > /tmp/disque/a/ballast 2> /tmp/disque/said || true\n",
            "  while redis-cli -p 7711 ADDJOB mail $(head -c 9999 /dev/zero | tr '\\0' x) 900"
            " REPLICATE 1 | grep D-; do :; done > /tmp/disque/said\n",
            "  echo TROUBLE\n",
            "The disk fills",
            "  for name in a b c; do kill -9 $(cat /tmp/disque/$name/pid); done\n",
        )
    expected = ["100% ", "ballast", "aof_last_write_status:err", "aof_disk_full:1", "PONG", WELL]
    found_in_order(expected, printed.replace("\r", "").partition("TROUBLE\n")[2])


def test_a_clock_that_is_wrong(type_in: Type) -> None:
    hook = f"{ROOT}/tests/support/skewed_clock:{PYTHONPATH}"
    started = node("c").splitlines()
    wrong = (
        "  echo 3600000 > /tmp/disque/wrong\n"
        f"  WRONG_CLOCK_FILE=/tmp/disque/wrong PYTHONPATH={hook} {started[1].strip()}\n"
    )
    look, restart = commands(PAGE, "A clock is wrong").split("redis-cli -p 7713 RESTART")
    printed = type_in(
        PAGE,
        PATH + node("a") + node("b") + started[0] + "\n" + wrong + JOINED,
        until("redis-cli -p 7711 INFO alarms | grep -q kind=clock"),
        "  redis-cli -p 7711 INFO alarms\n  echo TROUBLE\n",
        "  " + look.replace("\n", "\n  "),
        "  echo 0 > /tmp/disque/wrong\n  redis-cli -p 7713 RESTART" + restart,
    )
    alarms, _, printed = printed.partition("TROUBLE\n")
    assert "ahead" in alarms
    first, second, third, here = (int(line) for line in printed.split()[:4])
    assert abs(first - here) < 60
    assert abs(second - here) < 60
    assert 3500 < third - here < 3700


def test_a_certificate_that_has_expired(type_in: Type) -> None:
    expired = commands("certificates.md", "Make them").replace("-req -days 365", "-req -days -1", 1)
    printed = type_in(
        PAGE,
        HERE,
        "  {\n  " + expired.replace("\n", "\n  ").rstrip() + "\n  } 2> log\n",
        "  disque-server --tls-port 7711 --port 0 --bind 127.0.0.1 --tls-cert-file node.pem"
        " --tls-key-file node.key --tls-ca-cert-file ca.pem --tls-auth-clients no"
        f" --dir $PWD > log 2>&1 &\n{until('grep -q ready.to.accept log')}",
        "  ! disque --tls --cacert ca.pem -p 7711 PING 2>&1\n  echo TROUBLE\n",
        "A certificate has expired",
        "  kill $!\n",
    )
    refused, _, printed = printed.partition("TROUBLE\n")
    assert "expired" in refused
    served, file = re.findall("^notAfter=(.*)$", printed, re.MULTILINE)
    assert served == file
    assert printed.endswith("OK\nPONG\n")


def test_a_damaged_file(type_in: Type) -> None:
    printed = type_in(
        PAGE,
        three() + add("mail", 9, "REPLICATE 2 RETRY 60"),
        RESTARTED,
        "  rm /tmp/disque/a/disque.aof.sums\n  sed -i s/job5/j/ /tmp/disque/a/disque.aof\n",
        "  echo TROUBLE\n",
        "A node does not come up",
        "  disque -p 7712 jobs mail --state active --limit 100 | grep -c job\n",
    )
    printed = printed.partition("TROUBLE\n")[2]
    found_in_order(["damaged at offset", "AOF is not valid", "PONG", WELL, r"^\d"], printed)


def test_every_section_with_commands_is_typed() -> None:
    others = {
        *("A clock is wrong", "A certificate has expired", "A node does not come up"),
        "The disk fills",
    }
    titles = {block.titles[1] for block in blocks(f"docs/{PAGE}") if len(block.titles) > 1}
    assert titles == {*SYMPTOMS, *others}
