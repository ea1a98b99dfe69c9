"""The Debian package under a running systemd, in a container of systemd-nspawn."""

import os
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.debian import Debian, bootstrap, newer
from tests.support.harness import wait_until

DEB = os.environ.get("DISQUE_DEB", "")
pytestmark = [
    pytest.mark.live,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not DEB, reason="make test-deb"),
    pytest.mark.skipif(not shutil.which("systemd-nspawn"), reason="no systemd-nspawn"),
]
# The container has no network, so the dependencies of the package have to be there.
PACKAGES = (
    "systemd-sysv",
    "dbus",
    "procps",
    "python3",
    "adduser",
    "bash-completion",
    "fish",
    "zsh",
)
UNITS = ("disque.socket", "disque.service", "bananaq.service", "disque-outbox.service")
TYPED = (("pressure put --clo", "--close"), ("disque getj", "getjob"), ("bananaq --sto", "--store"))
# Loads the completion as bash-completion does when somebody types the name of the command.
BASH = """
. /usr/share/bash-completion/bash_completion
_completion_loader $1
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
$(complete -p $1 | sed 's/.*-F \\([^ ]*\\).*/\\1/')
echo "${COMPREPLY[@]}"
"""
# A zsh within zsh, where somebody types and presses Tab.
ZSH = r"""
zmodload zsh/zpty
zpty shell zsh -f -i
zpty -w shell 'PS1=; autoload -U compinit; compinit -u -D; print be""gun'
zpty -r shell seen '*begun*'
zpty -w -n shell "$1"$'\t'
zpty -r shell seen "*$2*"
"""
# Connects again and again until it is told to stop; an error if a connection is refused.
CLIENT = """
import os, socket
count = 0
while os.path.exists("/root/go-on"):
    socket.create_connection(("127.0.0.1", 7711)).close()
    count += 1
print(count)
"""


# What tasks may do under the worker's unit, and what they may not.
APP = """
import os, socket, subprocess, sys, tempfile
from pathlib import Path
from disque_trio.tasks import Disque

app = Disque()

@app.task(name="plain", queue="shop")
def plain():
    subprocess.run([sys.executable, "-c", "print(1)"], check=True, stdout=subprocess.DEVNULL)
    socket.create_connection(("127.0.0.1", 7711)).close()
    with tempfile.NamedTemporaryFile() as file:
        file.write(b"x")
    found = []
    for path in ("/etc/mine", "/usr/mine", "/home/mine"):
        try:
            Path(path).write_text("x")
        except OSError:
            found.append(path)
    Path("plain").write_text(" ".join(found))

@app.task(name="apart", queue="shop", process=True)
def apart():
    Path("apart").write_text(str(os.getuid()))
"""
ENVIRONMENT = """
DISQUE_WORKER=shop:app --queues shop
DISQUE_URL=disque://127.0.0.1:7711
PYTHONPATH=/opt/shop
"""
WORKER = "disque-worker.service"


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Debian]:
    debian = bootstrap(tmp_path_factory.mktemp("debian"), *PACKAGES)
    with debian.booted() as machine:
        yield machine


def state(machine: Debian, unit: str) -> str:
    return machine.run(f"systemctl is-active {unit}", check=False).stdout.strip()


def main_pid(machine: Debian, unit: str) -> str:
    return machine.run(f"systemctl show -P MainPID {unit}").stdout.strip()


def test_the_package_under_systemd_from_installing_to_purging(
    machine: Debian, tmp_path: Path
) -> None:
    machine.run(f"dpkg -i {machine.put(Path(DEB))}")

    found = machine.run(f"systemd-analyze verify {' '.join(UNITS)}")
    assert found.stdout + found.stderr == ""

    # The node serves at once, as its user; services that need settings first do not.
    assert state(machine, "disque.socket") == state(machine, "disque.service") == "active"
    assert state(machine, "bananaq.service") == state(machine, "disque-outbox.service")
    assert state(machine, "bananaq.service") == "inactive"
    assert machine.run("systemctl is-enabled disque.service").stdout == "enabled\n"
    assert machine.run("systemctl is-enabled bananaq.service", check=False).stdout == "disabled\n"
    assert machine.run("disque -p 7711 ping").stdout == "PONG\n"
    pid = main_pid(machine, "disque.service")
    assert machine.run(f"stat -c %U /proc/{pid}").stdout == "disque\n"
    job = machine.run("disque -p 7711 addjob mail hello 0 retry 1").stdout.strip()
    assert job.startswith("D-")

    # The completions that each shell offers.
    for typed, offered in TYPED:
        assert offered in machine.run(f"bash -c {shlex.quote(BASH)} bash {typed}").stdout.split()
        assert offered in machine.run(f"fish -c \"complete -C '{typed}'\"").stdout.split()
        machine.run(f"timeout 60 zsh -fc {shlex.quote(ZSH)} zsh '{typed}' {offered}")

    # bananaq, once it is started.
    machine.run("systemctl start bananaq.service")
    banana = main_pid(machine, "bananaq.service")
    assert machine.run(f"stat -c %U /proc/{banana}").stdout == "bananaq\n"

    # Tasks under the worker's unit.
    machine.path("/opt/shop").mkdir(parents=True)
    machine.path("/opt/shop/shop.py").write_text(APP)
    machine.path("/etc/disque/worker.env").write_text(ENVIRONMENT)
    example = f"/usr/share/doc/disque-trio/examples/{WORKER}"
    machine.run(f"sed s,/opt/disque/,/usr/lib/disque/, {example} > /etc/systemd/system/{WORKER}")
    machine.run("useradd --system disque-worker && systemctl daemon-reload")
    found = machine.run(f"systemd-analyze security --threshold=20 {WORKER}", check=False)
    assert found.returncode == 0, found.stdout + found.stderr
    machine.run(f"systemctl start {WORKER}")
    for task in ("plain", "apart"):
        body = '{"args": [], "kwargs": {}}'
        headers = f"headers 2 task {task} content-type application/json"
        machine.run(f"disque -p 7711 addjob shop '{body}' 0 retry 60 {headers}")
    done = machine.path("/var/lib/disque-worker")
    wait_until(lambda: (done / "plain").exists() and (done / "apart").exists())
    wait_until(lambda: (done / "plain").read_text() == "/etc/mine /usr/mine /home/mine")
    machine.run(f"systemctl stop {WORKER}")
    assert machine.run(f"systemctl show -P Result {WORKER}").stdout == "success\n"
    machine.run(f"rm /etc/systemd/system/{WORKER} /etc/disque/worker.env")

    # The configuration is read again, and written, where the unit allows it.
    machine.run("sed -i 's/^loglevel .*/loglevel warning/' /etc/disque/disque.conf")
    machine.run("systemctl reload disque.service")
    wait_until(
        lambda: "warning" in machine.run("disque -p 7711 config get loglevel").stdout.split()
    )
    assert machine.run("disque -p 7711 config set maxclients 500").stdout == "OK\n"
    assert machine.run("disque -p 7711 config rewrite").stdout == "OK\n"
    assert "maxclients 500" in machine.run("cat /etc/disque/disque.conf").stdout

    # An upgrade restarts what is running, and meanwhile no client is refused.
    before = machine.run("cat /etc/disque/disque.conf").stdout
    machine.path("/root/go-on").touch()
    with machine.start(f"exec python3 -c {shlex.quote(CLIENT)}") as client:
        try:
            machine.run(f"dpkg -i {machine.put(newer(Path(DEB), tmp_path))}")
        finally:
            machine.path("/root/go-on").unlink()
        assert int(client.communicate(timeout=60)[0]) > 0
    assert client.returncode == 0
    assert main_pid(machine, "disque.service") not in ("0", pid)
    assert main_pid(machine, "bananaq.service") not in ("0", banana)
    assert state(machine, "disque-outbox.service") == "inactive"
    assert machine.run("cat /etc/disque/disque.conf").stdout == before
    taken = machine.run("disque -p 7711 getjob from mail").stdout.split()
    assert taken == ["mail", job, "hello"]
    assert machine.run(f"disque -p 7711 ackjob {job}").stdout == "1\n"

    # Removing the package stops everything; then nothing listens, and nothing starts again.
    machine.run("dpkg --remove disque-trio")
    for unit in ("disque.socket", "disque.service", "bananaq.service"):
        assert state(machine, unit) == "inactive"
    assert machine.run("pgrep -u disque,bananaq", check=False).stdout == ""
    assert machine.run("cat /etc/disque/disque.conf").stdout == before
    machine.run("dpkg --purge disque-trio")
    assert not machine.path("/etc/disque").exists()
    assert machine.run("systemctl --failed --no-legend").stdout == ""
    assert not [*machine.path("/etc/systemd/system").glob("**/*disque*")]
