"""The script of the container, run without a container: ``config/container/disque-container``."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.support import ROOT
from tests.support.containers import Containers
from tests.support.harness import HANG_SECONDS, wait_until

pytestmark = pytest.mark.live


@pytest.fixture
def containers(tmp_path: Path) -> Iterator[Containers]:
    started = Containers(tmp_path)
    yield started
    started.end()


def test_nodes_with_secrets_meet_announce_and_end_at_sigterm(containers: Containers) -> None:
    secret = {
        "DISQUE_CLUSTER_SECRET_FILE": str(containers.directory / "cluster-secret"),
        "DISQUE_CONFIG": str(containers.directory / "disque.yaml"),
    }
    assert containers.run("healthy").returncode != 0
    containers.start("127.0.0.1", **secret, DISQUE_ANNOUNCE_IP="127.0.0.1")
    containers.start("127.0.0.2", **secret)
    wait_until(lambda: containers.ask("127.0.0.2", "ping") == "PONG\n")
    done = containers.run("meet", "127.0.0.1", "127.0.0.2", "no-such-name.invalid")
    assert done.returncode == 0, done.stderr
    wait_until(lambda: containers.ask("127.0.0.1", "cluster", "nodes").count("connected") == 2)
    assert containers.run("healthy").returncode == 0
    assert containers.ask("127.0.0.1", "config", "get", "maxmemory").split()[1] == str(2 * 1024**3)
    announced = containers.ask("127.0.0.1", "config", "get", "cluster-announce-ip").split()
    assert announced == ["cluster-announce-ip", "127.0.0.1"]
    assert "appendonly\nyes" in containers.ask("127.0.0.1", "config", "get", "appendonly")
    for process in containers.running:
        process.send_signal(signal.SIGTERM)
    assert [process.wait(HANG_SECONDS) for process in containers.running] == [0, 0]


def test_the_nodes_of_the_example_meet_and_share_jobs(containers: Containers) -> None:
    """``examples/cluster-containers``, on loopback addresses."""
    place = ROOT / "examples" / "cluster-containers"
    composed = yaml.safe_load((place / "compose.yaml").read_text())
    nodes = {"a": "127.0.0.1", "b": "127.0.0.2", "c": "127.0.0.3"}
    for name, address in nodes.items():
        service = composed["services"][name]
        build = service["build"]
        assert (place / build["context"] / build["dockerfile"]).is_file()
        (volume,) = service["volumes"]
        kept, inside = volume.split(":")
        assert (kept in composed["volumes"], inside) == (True, "/data")
        assert len(kept) > 1  # Docker takes c:/data for a Windows path
        assert set(service["secrets"]) == set(composed["secrets"])
        environ = {
            variable: value.replace("/run/secrets", str(containers.directory))
            for variable, value in service["environment"].items()
        }
        containers.start(address, **environ)
    *shell, loop = composed["services"]["meet"]["command"]
    loop = loop.replace("$$", "$").replace("7711", containers.environ["DISQUE_PORT"])
    loop = loop.replace("-h a", "-h 127.0.0.1").replace("in b c", "in 127.0.0.2 127.0.0.3")
    wait_until(lambda: containers.run(*shell, loop).returncode == 0)  # as when it is restarted

    def all_know_all() -> bool:
        told = [containers.ask(address, "cluster", "info") for address in nodes.values()]
        return all("cluster_known_nodes:3" in info for info in told)

    wait_until(all_know_all)
    job = ("greetings", "hello anna", "5000", "replicate", "3", "retry", "60")
    assert containers.ask("127.0.0.1", "addjob", *job).startswith("D-")
    got = containers.ask("127.0.0.2", "getjob", "timeout", "30000", "from", "greetings")
    assert "hello anna" in got


def test_without_its_password_nobody_is_served(containers: Containers) -> None:
    containers.start("127.0.0.1")
    wait_until(lambda: containers.run("healthy").returncode == 0)
    del containers.environ["DISQUE_PASSWORD_FILE"]
    assert containers.run("healthy").returncode != 0


@pytest.mark.parametrize("variable", ["DISQUE_PASSWORD_FILE", "DISQUE_CLUSTER_SECRET_FILE"])
@pytest.mark.parametrize("content", [None, "", "\n", "hush hush\nor two\n"])
def test_a_file_without_one_secret_ends_it_and_stays_secret(
    containers: Containers, variable: str, content: str | None
) -> None:
    containers.replace("disque-server", "echo started")
    file = containers.directory / "file"
    if content is not None:
        file.write_text(content)
    containers.environ[variable] = str(file)
    done = containers.run()
    assert (done.returncode, done.stdout) == (1, "")
    assert variable in done.stderr
    assert "hush" not in done.stderr


def test_a_file_that_cannot_be_read_ends_it(containers: Containers) -> None:
    containers.replace("disque-server", "echo started")
    containers.environ["DISQUE_PASSWORD_FILE"] = str(containers.directory)
    done = containers.run()
    assert (done.returncode, done.stdout) == (1, "")


def test_the_service_port_that_kubernetes_sets_is_ignored(containers: Containers) -> None:
    containers.replace("disque-server", 'echo "$@"')
    containers.environ["DISQUE_PORT"] = "tcp://10.0.0.1:9999"
    assert containers.run("--loglevel", "debug").stdout.split()[:3] == ["-", "--port", "7711"]


def test_a_first_argument_that_is_not_an_option_is_the_command(containers: Containers) -> None:
    assert containers.run("sh", "-c", "echo $DISQUECLI_AUTH").stdout == 'pass "word\\\n'
    assert containers.run("no-such-command").returncode == 127
