"""The commands in the READMEs of ``examples/`` are run as typed, and print what is shown there.
``tests/support/typed.yaml`` says where the other ones are run.
"""

import os
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from disque_trio.client.sync import connect
from tests.support import ROOT
from tests.support.documented import ID, Typist, until
from tests.support.harness import LiveNode, Wire, free_port
from tests.support.live_cluster import live_cluster
from tests.support.systemctl import INSTALL, settings_of

EXAMPLES = ROOT / "examples"


class Example:
    """A copy of an example for the ports of this test.

    Args:
        others: replacements in its files and in the commands.
    """

    def __init__(self, name: str, directory: Path, others: dict[str, str]) -> None:
        self.directory = directory / name
        caches = shutil.ignore_patterns("__pycache__")
        shutil.copytree(EXAMPLES / name, self.directory, ignore=caches)
        self._typist = Typist(directory, {**others, f"examples/{name}": str(self.directory)})
        for path in self.directory.iterdir():
            text = path.read_text()
            path.write_text(re.sub("|".join(others), lambda found: others[found[0]], text))
        readme = (EXAMPLES / name / "README.md").read_text()
        self.commands = "".join(re.findall(r"^ {4}(.*\n)", readme, re.MULTILINE))
        self.shown = "".join(re.findall(r"^```text\n(.*?)^```", readme, re.MULTILINE | re.DOTALL))

    def typed(self, before: str = "") -> str:
        """Return what the commands print."""
        return self._typist.type(before + self.commands)

    def type(self, before: str = "", *, ordered: bool = True) -> None:
        """Type the commands, which must print what the README shows.

        Args:
            before: what is typed first. ordered: the lines are printed in this order.
        """
        printed = self.typed(before)
        assert self.shown
        if ordered:
            assert self.shown in printed
        else:
            assert set(self.shown.splitlines()) <= set(printed.splitlines()), printed


@pytest.fixture
def node(shared_node: LiveNode) -> Iterator[LiveNode]:
    """The shared node; schedules and policies that the test leaves are removed."""
    yield shared_node
    with connect(f"127.0.0.1:{shared_node.port}") as client:
        for schedule in client.schedules.all():
            client.schedules.delete(schedule.name)
        for policy in client.policies():
            client.delete_policy(policy.name)


NODE = ("greetings", "priority-and-tenants", "rpc", "schedules", "tasks")


@pytest.mark.parametrize("name", NODE)
def test_on_a_node(
    name: str, node: LiveNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DISQUE_URL", f"disque://127.0.0.1:{node.port}")
    Example(name, tmp_path, {"7711": str(node.port)}).type(ordered=name not in ("rpc", "tasks"))


def test_pressure_pipeline(
    redis_port: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REDIS_PORT", redis_port)
    Example("pressure-pipeline", tmp_path, {".venv/bin": str(Path(sys.executable).parent)}).type()


def test_bananaq_groups(tmp_path: Path) -> None:
    others = {"4777": str(free_port()), "/tmp/bananaq": str(tmp_path / "bananaq")}
    Example("bananaq-groups", tmp_path, others).type()


# ``test_docs.py`` of Spark runs its commands as those of a page.
def spark_archive(directory: Path, port: int, pipeline: str) -> str:
    """Type the command, which must fail; returns what it prints, and whether a node answers."""
    others = {".venv/bin/disque-pipeline": pipeline, ".venv/bin": str(Path(sys.executable).parent)}
    others |= {"7791": str(port), "/tmp/shop": str(directory / "shop")}
    example = Example("spark-archive", directory, others)
    example.commands = f"if {example.commands.rstrip()}; then exit 1; fi\n"
    example.commands += "redis-cli -p 7791 PING || true\n"
    return example.typed()


def test_the_archive_of_spark_leaves_another_node_on_its_port_alone(
    shared_node: LiveNode, tmp_path: Path
) -> None:
    jobs = shared_node.info("jobs")
    printed = spark_archive(tmp_path, shared_node.port, "echo archived")
    assert "archived" not in printed
    assert printed.endswith("PONG\n")
    assert shared_node.info("jobs") == jobs


def test_the_archive_of_spark_stops_its_node_when_it_fails(tmp_path: Path) -> None:
    printed = spark_archive(tmp_path, free_port(), "false")
    assert re.search(rf"^{ID}$", printed, re.MULTILINE)
    assert "Connection refused" in printed.splitlines()[-1]


# The number of dead letters, and how many jobs each node knows.
COUNTS = """
each() { for port in 7711 7712 7713; do redis-cli -p $port "$@"; done; }
dead() { each QLEN mails.dead | sum; }
left() { each INFO jobs | grep registered | sum; }
sum() { tr -d '\\r' | awk -F : '{n += $NF} END {print n}'; }
"""


def test_mails(tmp_path: Path) -> None:
    with live_cluster(tmp_path, 3) as cluster:
        ports = [str(node.port) for node in cluster]
        others = dict(zip(("7711", "7712", "7713"), ports, strict=True))
        others |= {"RETRY 5": "RETRY 1", "BACKOFF 1 60": "BACKOFF 0.1 0.4"}
        example = Example("mails", tmp_path, others)
        policy, add, send, peek, redrive, send_fixed = example.commands.splitlines()
        script = f"{COUNTS}{policy}\n"
        for port in ("7711", "7712", "7713"):
            script += until(f"redis-cli -p {port} QGET mails | grep -q attempts")
        script += f"{add}\nwhile [ $(dead) -lt 3 ]; do\n  {send} >> {tmp_path}/sent &\n"
        script += "  while kill -0 $! && [ $(dead) -lt 3 ]; do sleep 0.1; done\ndone 2> /dev/null\n"
        script += f"kill -9 $! || true\n{peek}\n{redrive}\n{send_fixed} >> {tmp_path}/sent &\n"
        script += until("[ $(left) = 0 ]") + "left\n"
        example.commands = script
        printed = example.typed()
    assert printed.endswith("\n0\n")
    sent = set(re.findall(r"^sent (mail \d)", (tmp_path / "sent").read_text(), re.MULTILINE))
    assert sent == {f"mail {number}" for number in range(1, 10)}


# Commands that only root may run, on a machine of one's own.
SYSTEMCTL = """\
systemctl() {
    local unit=${!#} name
    name=${unit#*@}
    [ "$name" = "$unit" ] || sed "s/%i/${name%.service}/g" UNITS/disque@.service > "UNITS/$unit"
    "$PYTHON" tests/support/systemctl.py UNITS "$@"
}
"""


def test_cluster_systemd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHON", sys.executable)
    units = tmp_path / "etc/systemd/system"
    units.mkdir(parents=True)
    others = {port: str(free_port()) for port in ("7711", "7712", "7713")}
    others |= {f"/{place}": f"{tmp_path}/{place}" for place in ("etc", "var/lib")}
    others["/opt/disque/bin"] = str(Path(sys.executable).parent)
    example = Example("cluster-systemd", tmp_path, others)
    stand_in = INSTALL + SYSTEMCTL.replace("UNITS", "/etc/systemd/system")
    end = "".join(f"systemctl stop disque@{node}.service\n" for node in "abc")
    example.commands += end
    try:
        example.type(stand_in)
    finally:
        for pid in (tmp_path / "etc/systemd/run").glob("*.pid"):
            os.kill(int(pid.read_text()), 9)


def test_the_unit_of_the_cluster_is_right_for_systemd(tmp_path: Path) -> None:
    """Settings agree with config/disque.service, where both have them."""
    node = settings_of(ROOT / "config/disque.service")
    template = settings_of(EXAMPLES / "cluster-systemd/disque@.service")
    own = ("Description", "ExecStart", "StateDirectory", "WorkingDirectory")
    for name, values in template.items():
        assert name in own or set(values) <= set(node[name]), name


def test_each_example_has_a_readme_that_is_listed() -> None:
    names = {path.name for path in EXAMPLES.iterdir() if path.is_dir()}
    listed = set(re.findall(r"\((\S+)/README\.md\)", (EXAMPLES / "README.md").read_text()))
    assert listed == names
    assert all((EXAMPLES / name / "README.md").exists() for name in names)


def test_outbox(shared_node: LiveNode, talk: Wire, tmp_path: Path) -> None:
    others = {"7711": str(shared_node.port), "sqlite:///shop.db": f"sqlite:///{tmp_path}/shop.db"}
    example = Example("outbox", tmp_path, others)
    first, second, forward, get = example.commands.splitlines()
    example.commands = f"{first}\n! {second}\n{forward}\n{get}\n"
    example.type()
    assert talk("GETJOB", "NOHANG", "FROM", "orders") is None


def test_shop(node: LiveNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISQUE_URL", f"disque://127.0.0.1:{node.port}")
    monkeypatch.setenv("SHOP_DATABASE", f"sqlite:///{tmp_path}/shop.db")
    port = str(free_port())
    others = {
        "7711": str(node.port),
        "8000": port,
        "sqlite:///shop.db": f"sqlite:///{tmp_path}/shop.db",
    }
    example = Example("shop", tmp_path, others)
    lines = example.commands.splitlines()
    books, *servers = lines[:-5]
    price, order, look, export, report = lines[-5:]
    page = (ROOT / "docs" / "worker.md").read_text(encoding="utf-8")
    shown_there = re.findall(r"^    (disque-worker .*--app-dir .*)$", page, re.MULTILINE)
    assert shown_there == [line.rpartition(".venv/bin/")[2] for line in servers[:2]]
    script = f"{books}\n"
    script += "".join(f"{line} > {tmp_path}/log{n} 2>&1 &\n" for n, line in enumerate(servers))
    script += until(f"curl -so /dev/null http://127.0.0.1:{port}") + f"{price}\n{order}\n"
    script += until(f"{look} | grep -q done") + f"{look}\nadded=$({export})\n{report}\n"
    shown = f"curl -s http://127.0.0.1:{port}/exports/$(echo $added | cut -d '\"' -f 4)"
    script += (
        until(f"{shown} | grep -q table") + f"{shown} -X DELETE -w '%{{http_code}}'\n{shown}\n"
    )
    script += until(f"grep -q 'orders: 1 done' {tmp_path}/log0") + "kill $(jobs -p)\nwait\n"
    example.commands = script
    printed = example.typed()
    answers = ('{"price":25}', '{"number":1}', '{"what":"apples","state":"done"}')
    for answer in (*answers, r'null202{"table":"1,ann,apples,done\r\n"}'):
        assert answer in printed
    assert "orders: 1 done" in (tmp_path / "log0").read_text()
