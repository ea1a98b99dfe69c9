"""The Debian package in a separate Debian: installed, run, upgraded, removed and purged.

``make test-deb`` builds the package and names it in ``DISQUE_DEB``. It needs root, mmdebstrap and a
Debian mirror. Unlike in ``test_systemd.py``, there is no systemd: the node is started with the
command of its unit, as its user.
"""

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.debian import Debian, bootstrap, newer
from tests.support.harness import free_port, wait_until

DEB = os.environ.get("DISQUE_DEB", "")
pytestmark = [
    pytest.mark.live,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not DEB, reason="make test-deb"),
]
COMMANDS = (
    "bananaq",
    "bananaq-check-aof",
    "disque",
    "disque-check-aof",
    "disque-console",
    "disque-outbox",
    "disque-pipeline",
    "disque-server",
    "disque-worker",
    "pressure",
)


@contextmanager
def node(debian: Debian) -> Iterator[int]:
    """Start a node with the command of the installed unit, as its user; yields its port."""
    unit = debian.path("/lib/systemd/system/disque.service").read_text()
    (start,) = re.findall(r"^ExecStart=(.*)", unit, re.MULTILINE)
    command = shlex.join(["setpriv", "--reuid=disque", "--regid=disque", "--init-groups"])
    config = debian.path("/etc/disque/disque.conf").read_text()
    (port,) = re.findall(r"^port (\d+)", config, re.MULTILINE)
    with debian.start(f"cd /var/lib/disque; exec {command} {start}") as process:

        def answers() -> bool:
            assert process.poll() is None
            return debian.run(f"disque -p {port} ping", check=False).stdout == "PONG\n"

        try:
            wait_until(answers, 60)
            yield int(port)
        finally:
            process.terminate()
            assert process.wait(60) == 0


@pytest.fixture(scope="module")
def debian(tmp_path_factory: pytest.TempPathFactory) -> Debian:
    return bootstrap(tmp_path_factory.mktemp("debian"))


@pytest.mark.skipif(not shutil.which("lintian"), reason="no lintian")
def test_lintian_has_no_error_and_no_warning() -> None:
    command = ["lintian", "--allow-root", "--fail-on", "error,warning", DEB]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_package_from_installing_to_purging(debian: Debian, tmp_path: Path) -> None:
    # apt installs it with its dependencies. No service starts, since there is no systemd.
    name = debian.put(Path(DEB))
    debian.run("apt-get update")
    debian.run(f"apt-get install --yes --no-install-recommends {name}")
    assert debian.run("stat -c %U:%G:%a /etc/disque").stdout == "disque:disque:750\n"
    assert debian.run("stat -c %U:%G:%a /etc/disque/disque.conf").stdout == "disque:disque:640\n"
    assert debian.run("stat -c %U:%G:%a /var/lib/disque").stdout == "disque:disque:700\n"
    assert debian.run("id -un bananaq").stdout == "bananaq\n"
    assert debian.path("/etc/logrotate.d/disque-trio").exists()
    for command in COMMANDS:
        assert "usage" in debian.run(f"{command} --help").stdout.lower()
        assert list(debian.path("/usr/share/man").glob(f"man*/{command}.*.gz"))
        assert debian.path(f"/usr/share/bash-completion/completions/{command}").exists()
        assert debian.path(f"/usr/share/zsh/vendor-completions/_{command}").exists()
        assert debian.path(f"/usr/share/fish/vendor_completions.d/{command}.fish").exists()
    assert "compiled" in debian.run("disque-server --version").stdout
    assert "/usr/bin/python" not in debian.run("head -n 1 /usr/lib/disque/bin/disque").stdout
    units = sorted(debian.path("/lib/systemd/system").glob("*.service"))
    starts = "".join(unit.read_text() for unit in units)
    for program in re.findall(r"^ExecStart=(/usr/lib/disque/\S+)", starts, re.MULTILINE):
        assert debian.path(program).exists()

    # A changed configuration, and a node that uses it.
    config = debian.path("/etc/disque/disque.conf")
    edited = re.sub(r"^port \d+", f"port {free_port()}", config.read_text(), flags=re.MULTILINE)
    edited = re.sub(r"^appendonly .*", "appendonly yes", edited, flags=re.MULTILINE)
    config.write_text(edited + "\n# ours\n")
    with node(debian) as port:
        job = debian.run(f"disque -p {port} addjob mail hello 0 retry 1").stdout.strip()
        assert job.startswith("D-")
    before = debian.run("cat /etc/disque/disque.conf").stdout

    # An upgrade keeps both.
    debian.run(f"dpkg -i {debian.put(newer(Path(DEB), tmp_path))}")
    assert debian.run("dpkg-query -W -f '${Version}' disque-trio").stdout.endswith("+later")
    assert debian.run("cat /etc/disque/disque.conf").stdout == before
    with node(debian) as port:
        taken = debian.run(f"disque -p {port} getjob from mail").stdout.split()
        assert taken == ["mail", job, "hello"]
        assert debian.run(f"disque -p {port} ackjob {job}").stdout == "1\n"
        assert debian.run(f"disque -p {port} config rewrite").stdout == "OK\n"

    # Removing it keeps the configuration and the data, but nothing of the program.
    rewritten = debian.run("cat /etc/disque/disque.conf").stdout
    debian.run("dpkg --remove disque-trio")
    assert debian.run("cat /etc/disque/disque.conf").stdout == rewritten
    assert list(debian.path("/var/lib/disque").iterdir())
    assert not debian.path("/usr/lib/disque").exists()
    assert not debian.path("/usr/bin/disque-server").is_symlink()

    # Purging it removes the configuration that the package made, but neither data nor other files.
    debian.path("/etc/bananaq/users.acl").write_text("user alice on\n")
    debian.run("install -d /var/log/disque && touch /var/log/disque/disque.log.1")
    debian.run("dpkg --purge disque-trio")
    assert not debian.path("/etc/disque").exists()
    assert not debian.path("/var/log/disque").exists()
    assert [path.name for path in debian.path("/etc/bananaq").iterdir()] == ["users.acl"]
    assert list(debian.path("/var/lib/disque").iterdir())
    assert not debian.path("/var/lib/bananaq").exists()
