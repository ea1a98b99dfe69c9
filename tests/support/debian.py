"""A separate Debian, in a directory: mmdebstrap makes it, as root, from a mirror."""

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.harness import wait_until

ENVIRON = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND": "noninteractive"}


class Debian:
    """The Debian in a directory. ``enter``: the prefix of a command that runs in it."""

    def __init__(self, root: Path, enter: tuple[str, ...] = ()) -> None:
        self.root = root
        self._enter = enter or ("chroot", str(root))

    def run(self, command: str, check: bool = True) -> "subprocess.CompletedProcess[str]":
        done = subprocess.run(
            [*self._enter, "sh", "-c", command],
            capture_output=True,
            text=True,
            check=False,
            env=ENVIRON,
        )
        assert not check or done.returncode == 0, done.stdout + done.stderr
        return done

    def start(self, command: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [*self._enter, "sh", "-c", command], env=ENVIRON, stdout=subprocess.PIPE, text=True
        )

    def path(self, name: str) -> Path:
        return self.root / name.lstrip("/")

    def put(self, deb: Path) -> str:
        """Copy a package into it; return its path there."""
        self.path("/root/package.deb").write_bytes(deb.read_bytes())
        return "/root/package.deb"

    @contextmanager
    def booted(self) -> Iterator["Debian"]:
        """Boot it: its systemd is process 1, and its own network has only ``lo``."""
        options = ("--quiet", "--register=no", "--keep-unit", "--private-network", "--boot")
        log = self.root.with_name(self.root.name + ".log")
        with log.open("w") as output:
            machine = subprocess.Popen(
                ["systemd-nspawn", *options, "--directory", str(self.root)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        children = Path(f"/proc/{machine.pid}/task/{machine.pid}/children")

        def is_up() -> bool:
            assert machine.poll() is None, log.read_text()
            first = children.read_text().split()
            if not first:
                return False
            inside = Debian(self.root, ("nsenter", "--target", first[0], "--all"))
            state = inside.run("systemctl is-system-running", check=False).stdout.strip()
            return state in ("running", "degraded")

        try:
            wait_until(is_up, 120)
            (first,) = children.read_text().split()
            yield Debian(self.root, ("nsenter", "--target", first, "--all"))
        finally:
            machine.terminate()  # which asks it to power off
            try:
                machine.wait(60)
            finally:
                machine.kill()


def bootstrap(root: Path, *packages: str) -> Debian:
    """Install the release of this Debian into ``root``, with more packages."""
    root.chmod(0o755)
    release = dict(
        line.split("=", 1) for line in Path("/etc/os-release").read_text().splitlines() if line
    )
    suite = release["VERSION_CODENAME"].strip('"')
    mirror = os.environ.get("DEBIAN_MIRROR", "http://deb.debian.org/debian")
    include = [f"--include={','.join(packages)}"] if packages else []
    subprocess.run(
        ["mmdebstrap", "--quiet", "--variant=apt", *include, suite, str(root), mirror],
        check=True,
        timeout=900,
    )
    for name in ("resolv.conf", "hosts"):
        (root / "etc" / name).write_bytes(Path("/etc", name).read_bytes())
    return Debian(root)


def newer(deb: Path, directory: Path) -> Path:
    """Return a copy of a package, as a later version."""
    tree = directory / "tree"
    subprocess.run(["dpkg-deb", "-R", str(deb), str(tree)], check=True)
    control = tree / "DEBIAN" / "control"
    text = re.sub(r"^(Version: .*)$", r"\1+later", control.read_text(), flags=re.MULTILINE)
    control.write_text(text)
    built = directory / "later.deb"
    subprocess.run(["dpkg-deb", "-Znone", "-b", str(tree), str(built)], check=True)
    return built
