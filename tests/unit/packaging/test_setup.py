"""What ``tools/setup.sh`` does about missing Debian packages: it names all of them, and installs
them only where it may."""

import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support import ROOT

# The programs that the script itself calls.
TOOLS = """sh cat chmod cksum cmp cp cut dirname echo find flock grep ls mkdir mv rm sha256sum sort
tail touch tr xargs"""
PYTHON_WITHOUT_VENV = """#!/bin/sh
case "$*" in
    *ensurepip*) exit 1 ;;
    *sysconfig*) echo /nowhere ;;
esac
"""
# Records that it was asked for a wheel, and leaves behind what a build would leave.
PYTHON_THAT_BUILDS = """#!/bin/sh
case "$*" in
    *sysconfig*) echo {headers} ;;
    *" wheel "*)
        echo wheel >>{built}
        for directory; do
            [ "$before" != --wheel-dir ] || break
            before=$directory
        done
        mkdir -p build "$directory"
        echo a compiler >build/compiled-by
        : >"$directory/disque_trio.whl"
        ;;
esac
"""


class Machine:
    """A checkout on a machine with almost nothing installed."""

    def __init__(self, directory: Path) -> None:
        self.bin = directory / "bin"
        self.bin.mkdir()
        self.calls = directory / "apt-calls"
        (directory / "tree" / "tools").mkdir(parents=True)
        self.script = directory / "tree" / "tools" / "setup.sh"
        shutil.copy(ROOT / "tools" / "setup.sh", self.script)
        for tool in TOOLS.split():
            found = shutil.which(tool)
            assert found
            (self.bin / tool).symlink_to(found)

    def program(self, name: str, text: str) -> None:
        path = self.bin / name
        path.write_text(text)
        path.chmod(0o755)

    def set_up(self, purpose: str, **environ: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [str(self.script), purpose],
            env={"PATH": str(self.bin), **environ},
            capture_output=True,
            text=True,
            check=False,
        )


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


class Compiling(Machine):
    """A checkout with a compiler, and an environment for the compiled build."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.tree = directory / "tree"
        for name in ("config/disque.yaml", "disque_trio/node.py", "tools/packaging/build.py"):
            (self.tree / name).parent.mkdir(exist_ok=True)
            (self.tree / name).write_text("the first\n")
        for name in ("pyproject.toml", "setup.py"):
            (self.tree / name).write_text("the first\n")
        (directory / "Python.h").touch()
        self.built = directory / "built"
        self.built.touch()
        self.program("cc", "#!/bin/sh\n")
        self.program("python3", PYTHON_THAT_BUILDS.format(headers=directory, built=self.built))
        programs = self.tree / ".venv-compiled" / "bin"
        programs.mkdir(parents=True)
        (programs / "python").symlink_to(self.bin / "python3")
        (programs / "disque-server").symlink_to("/bin/true")

    def builds(self) -> bool:
        """Return whether it compiles now."""
        before = self.built.read_text()
        done = self.set_up("compiled")
        assert done.returncode == 0, done.stderr
        return self.built.read_text() != before


def packages(text: str) -> set[str]:
    (line,) = [line for line in text.splitlines() if "apt-get install" in line]
    return set(line.partition("--no-install-recommends")[2].split())


def test_without_root_all_that_is_missing_is_named_at_once_and_nothing_installed(
    machine: Machine,
) -> None:
    machine.program("id", "#!/bin/sh\necho 1000\n")
    machine.program("apt-get", f"#!/bin/sh\n:>{machine.calls}\n")
    machine.program("python3", PYTHON_WITHOUT_VENV)
    machine.program("valgrind", "#!/bin/sh\n")
    done = machine.set_up("test")
    assert done.returncode == 1
    named = packages(done.stderr)
    assert {"python3-venv", "redis-server", "prometheus", "default-jre-headless"} <= named
    assert {"gcc", "python3-dev"} <= named
    assert "valgrind" not in named
    assert not machine.calls.exists()


def test_a_machine_without_python_is_told_what_else_is_missing(machine: Machine) -> None:
    machine.program("id", "#!/bin/sh\necho 1000\n")
    done = machine.set_up("compiled")
    assert done.returncode == 1
    assert packages(done.stderr) == {"python3", "python3-venv", "python3-dev", "gcc", "libc6-dev"}


def test_root_without_apt_is_told_as_well(machine: Machine) -> None:
    machine.program("id", "#!/bin/sh\necho 0\n")
    done = machine.set_up("run")
    assert done.returncode == 1
    assert packages(done.stderr) == {"python3", "python3-venv"}


def test_root_is_told_in_one_line_what_is_installed_before_it_is(machine: Machine) -> None:
    policy = machine.bin / "policy-rc.d"
    machine.program("id", "#!/bin/sh\necho 0\n")
    machine.program(
        "apt-get", f'#!/bin/sh\n[ -x "$POLICY" ] && echo "$@" >>{machine.calls}\nexit 7\n'
    )
    machine.program("python3", PYTHON_WITHOUT_VENV)
    done = machine.set_up("run", POLICY=str(policy))
    assert done.returncode != 0  # as this apt-get installs nothing
    assert done.stdout.splitlines() == ["setup: installing these Debian packages: python3-venv"]
    first = machine.calls.read_text().splitlines()[0].split()
    assert first[0] == "install"
    assert first[-1] == "python3-venv"
    assert not policy.exists()


def test_services_can_start_again_after_an_interrupted_installation(machine: Machine) -> None:
    policy = machine.bin / "policy-rc.d"
    machine.program("id", "#!/bin/sh\necho 0\n")
    machine.program("apt-get", f'#!/bin/sh\n[ -x "$POLICY" ] && :>{machine.calls}\nkill $PPID\n')
    machine.program("python3", PYTHON_WITHOUT_VENV)
    assert machine.set_up("run", POLICY=str(policy)).returncode != 0
    assert machine.calls.exists()
    assert not policy.exists()


def test_what_is_there_needs_neither_apt_nor_an_administrator(machine: Machine) -> None:
    machine.program("python3", "#!/bin/sh\n")
    venv = machine.script.parent.parent / ".venv"
    (venv / "bin").mkdir(parents=True)
    (venv / "bin" / "python").symlink_to(machine.bin / "python3")
    (machine.script.parent.parent / "pyproject.toml").write_text("[project]")
    (venv / ".installed-console,cron").write_text("[project]")
    done = machine.set_up("run")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_missing_python_is_not_called_old(machine: Machine) -> None:
    machine.program("python3", "#!/bin/sh\n")
    done = machine.set_up("run", PYTHON="python3.13")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "setup: there is no python3.13\n"


def test_a_python_of_its_own_version_gets_packages_of_that_version(machine: Machine) -> None:
    machine.program("id", "#!/bin/sh\necho 1000\n")
    machine.program("python3.12", PYTHON_WITHOUT_VENV)
    done = machine.set_up("compiled", PYTHON="python3.12")
    assert packages(done.stderr) == {"gcc", "libc6-dev", "python3.12-dev", "python3.12-venv"}


def test_only_other_contents_are_compiled_again(tmp_path: Path) -> None:
    machine = Compiling(tmp_path)
    source = machine.tree / "disque_trio" / "node.py"
    assert machine.builds()
    assert not machine.builds()
    os.utime(source)  # as after a checkout of another branch and back
    assert not machine.builds()
    source.write_text("the second\n")
    assert machine.builds()
    assert not machine.builds()
    source.rename(source.with_name("renamed.py"))
    assert machine.builds()


@pytest.mark.slow
def test_what_was_compiled_before_is_kept(tmp_path: Path) -> None:
    machine = Compiling(tmp_path)
    source = machine.tree / "disque_trio" / "node.py"
    assert machine.builds()
    source.write_text("another branch\n")
    assert machine.builds()
    source.write_text("the first\n")
    assert not machine.builds()
    for n in range(9):
        source.write_text(f"branch {n}\n")
        assert machine.builds()
    assert len([*(machine.tree / "build" / "wheels").iterdir()]) == 5


def test_two_that_need_the_same_build_compile_once(tmp_path: Path) -> None:
    machine = Compiling(tmp_path)
    with ThreadPoolExecutor(2) as pool:
        done = [*pool.map(machine.set_up, ["compiled", "compiled"])]
    assert [one.returncode for one in done] == [0, 0]
    assert machine.built.read_text() == "wheel\n"


def test_a_build_that_fails_is_not_kept(tmp_path: Path) -> None:
    machine = Compiling(tmp_path)
    builder = machine.bin / "python3"
    whole = builder.read_text()
    builder.write_text(whole.replace("echo wheel", "exit 3; echo wheel"))
    assert machine.set_up("compiled").returncode != 0
    builder.write_text(whole)
    assert machine.builds()


def test_other_metadata_is_installed_again(tmp_path: Path) -> None:
    machine = Compiling(tmp_path)
    (machine.tree / ".venv").symlink_to(".venv-compiled")
    assert machine.set_up("check").stderr
    os.utime(machine.tree / "pyproject.toml")
    assert not machine.set_up("check").stderr
    assert not machine.set_up("run").stderr  # which needs less
    (machine.tree / "pyproject.toml").write_text("the second\n")
    assert machine.set_up("run").stderr


def test_the_environment_of_a_checkout_that_was_moved_is_made_again(tmp_path: Path) -> None:
    machine = Compiling(tmp_path)
    made = tmp_path / "made"
    machine.program("python3", f'#!/bin/sh\necho "$@" >>{made}\n')
    configuration = machine.tree / ".venv-compiled" / "pyvenv.cfg"
    (machine.tree / ".venv").symlink_to(".venv-compiled")
    for place, again in ((configuration.parent, False), ("/elsewhere/.venv", True)):
        configuration.write_text(f"command = python3 -m venv --clear {place}\n")
        made.write_text("")
        machine.set_up("run")
        assert ("-m venv" in made.read_text()) == again
