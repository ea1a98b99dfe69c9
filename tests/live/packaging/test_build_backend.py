"""Which build of the package an installation gets."""

import os
import shutil
import subprocess
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.support import ROOT
from tests.support.commands import run_command

SOURCES = ("disque_trio", "config", "tools/packaging", "docs")
FILES = ("setup.py", "pyproject.toml", "MANIFEST.in", "README.md", "LICENSE")
# Of the package, what is enough to build a wheel with an extension, and a module without one.
FEW = (
    *("__init__.py", "version.py", "py.typed", "worker/__init__.py", "worker/command.py"),
    *("resp/*", "respserver/__init__.py", "respserver/io/__init__.py", "respserver/io/*.c"),
)

# Stands in for a mypy that finds an error, or cannot be run here.
BROKEN_MYPYC = "raise RuntimeError('mypyc is broken')\n"
# Leaves only the C modules to compile, which takes a second.
IDLE_MYPYC = "def mypycify(paths, **options):\n    return []\n"


def around(tmp_path: Path, *sources: str) -> Path:
    """A directory with ``sources`` and all that is needed to build them; compiling would fail."""
    tree = tmp_path / "tree"
    for name in sources:
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, tree / name, ignore=ignored)
    for path in (ROOT / name for name in FILES):
        shutil.copy(path, tree)
    broken = tmp_path / "broken" / "mypyc"
    broken.mkdir(parents=True)
    (broken / "__init__.py").write_text("")
    (broken / "build.py").write_text(BROKEN_MYPYC)
    return tree


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """What is needed to build a package of a few modules."""
    tree = around(tmp_path, "config", "tools/packaging")
    package = ROOT / "disque_trio"
    for path in (path for pattern in FEW for path in package.glob(pattern) if path.is_file()):
        copy = tree / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, copy)
    return tree


@pytest.fixture
def whole_tree(tmp_path: Path) -> Path:
    """What is needed to build the package."""
    return around(tmp_path, *SOURCES)


def build(
    tree: Path, hook: str, *arguments: str, **environ: str
) -> "subprocess.CompletedProcess[str]":
    """Call a hook of the build backend as pip does: in a separate process, in the tree. Compiling
    would fail."""
    variables = {k: v for k, v in os.environ.items() if k not in ("DISQUE_TRIO_COMPILE", "CC")}
    return run_command(
        "tests.support.build_hook",
        str(tree.parent / "broken"),
        hook,
        *arguments,
        cwd=tree,
        env={**variables, **environ},
        text=True,
    )


def only_wheel(directory: Path) -> Path:
    (wheel,) = directory.glob("*.whl")
    return wheel


def is_pure(wheel: Path, tree: Path) -> bool:
    """Whether it is of the pure build; all modules of the tree have to be there."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    modules = tree.glob("disque_trio/**/*.py")
    assert {str(path.relative_to(tree)) for path in modules} <= set(names)
    assert "disque_trio/py.typed" in names
    for file in ("disque.conf", "grafana-dashboard.json", "prometheus-alerts.yml"):
        assert any(name.endswith(f"share/disque/{file}") for name in names)
    return wheel.name.endswith("-py3-none-any.whl") and not any(
        name.endswith(sysconfig.get_config_var("EXT_SUFFIX")) for name in names
    )


def test_the_pure_build_can_be_requested(whole_tree: Path, tmp_path: Path) -> None:
    done = build(whole_tree, "build_wheel", str(tmp_path), DISQUE_TRIO_COMPILE="0")
    assert done.returncode == 0, done.stderr
    wheel = only_wheel(tmp_path)
    assert is_pure(wheel, whole_tree)


def test_without_a_c_compiler_the_build_is_pure_and_says_why(tree: Path, tmp_path: Path) -> None:
    done = build(tree, "build_wheel", str(tmp_path), CC="no-such-compiler")
    assert done.returncode == 0, done.stderr
    assert is_pure(only_wheel(tmp_path), tree)
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("disque-trio: ")]
    assert "no-such-compiler" in line


def test_if_compiling_fails_the_build_is_pure_and_says_why(tree: Path, tmp_path: Path) -> None:
    done = build(tree, "build_wheel", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert is_pure(only_wheel(tmp_path), tree)
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("disque-trio: ")]
    assert "mypyc is broken" in line


@pytest.mark.parametrize("why", ["no compiler", "broken"])
def test_a_requested_compiled_build_that_fails_is_an_error(
    tree: Path, tmp_path: Path, why: str
) -> None:
    environ = {"CC": "no-such-compiler"} if why == "no compiler" else {}
    done = build(tree, "build_wheel", str(tmp_path), DISQUE_TRIO_COMPILE="1", **environ)
    assert done.returncode != 0
    assert ("no-such-compiler" if why == "no compiler" else "mypyc is broken") in done.stderr
    assert not list(tmp_path.glob("*.whl"))


def test_only_what_has_changed_is_compiled_again(tree: Path, tmp_path: Path) -> None:
    why_pure = build(tree, "why_pure").stdout.strip()
    if why_pure:
        pytest.skip(why_pure)
    (tmp_path / "broken" / "mypyc" / "build.py").write_text(IDLE_MYPYC)

    def compiled(**environ: str) -> dict[str, int]:
        """Return the libraries after a build, with their times."""
        done = build(tree, "build_wheel", str(tmp_path), DISQUE_TRIO_COMPILE="1", **environ)
        assert done.returncode == 0, done.stderr
        libraries = (tree / "build").glob("lib*/**/*.so")
        return {path.name.partition(".")[0]: path.stat().st_mtime_ns for path in libraries}

    first = compiled()
    assert set(first) == {"_cut", "_sockets"}
    (old,) = (tree / "build").glob("lib*/**/_cut*.so")
    shutil.copy(old, old.with_name(old.name.replace("_cut", "removed")))
    with (tree / "disque_trio" / "worker" / "command.py").open("a") as interpreted:
        interpreted.write("# another line\n")
    assert compiled() == first
    with (tree / "disque_trio" / "resp" / "_cut.c").open("a") as source:
        source.write("/* another line */\n")
    second = compiled()
    assert {name for name in second if second[name] != first[name]} == {"_cut"}
    third = compiled(CFLAGS="-O0")
    assert {name for name in third if third[name] != second[name]} == {"_cut", "_sockets"}


@pytest.mark.parametrize(
    ("environ", "wanted"),
    [
        ({}, True),
        ({"DISQUE_TRIO_COMPILE": "1"}, True),
        ({"DISQUE_TRIO_COMPILE": "0"}, False),
        ({"CC": "no-such-compiler"}, False),
        ({"CC": "false"}, False),
    ],
)
def test_mypy_is_asked_for_only_when_something_is_to_be_compiled(
    tree: Path, environ: dict[str, str], wanted: bool
) -> None:
    done = build(tree, "get_requires_for_build_wheel", **environ)
    assert done.returncode == 0, done.stderr
    assert ("'mypy" in done.stdout) == wanted


@pytest.mark.parametrize(
    "hook", ["get_requires_for_build_sdist", "get_requires_for_build_editable"]
)
def test_nothing_but_a_wheel_asks_for_mypy(tree: Path, hook: str) -> None:
    done = build(tree, hook, DISQUE_TRIO_COMPILE="1")
    assert done.returncode == 0, done.stderr
    assert "mypy" not in done.stdout


def test_an_editable_install_is_pure_even_where_compiling_is_asked_for(
    tree: Path, tmp_path: Path
) -> None:
    done = build(tree, "build_editable", str(tmp_path), DISQUE_TRIO_COMPILE="1")
    assert done.returncode == 0, done.stderr
    assert only_wheel(tmp_path).name.endswith("-py3-none-any.whl")
    assert not list(tree.rglob("*.so"))


def test_a_source_distribution_has_all_that_building_and_testing_need(
    tree: Path, tmp_path: Path
) -> None:
    more = {"Makefile", "tests/unit/test_it.py", "examples/node/worker.js", "tools/setup.sh"}
    more.add("disque_trio/node/core/node.py")
    # In a checkout: everything that is in the repository.
    command = ["git", "-C", str(ROOT), "ls-files"]
    if shutil.which("git"):
        listed = subprocess.run(command, capture_output=True, text=True, check=False)
        more.update(listed.stdout.splitlines())
    unwanted = {
        "examples/cluster-containers/password",  # of somebody who tried the example
        "examples/node/node_modules/theirs.js",
        "tests/unit/test_it.pyc",
    }
    for name in more | unwanted:
        path = tree / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    done = build(tree, "build_sdist", str(tmp_path), DISQUE_TRIO_COMPILE="1")
    assert done.returncode == 0, done.stderr
    (archive,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as files:
        names = {name.partition("/")[2] for name in files.getnames()}
    assert {"setup.py", "pyproject.toml", "tools/packaging/disque_build.py"} <= names
    assert {"config/disque.conf", "disque_trio/py.typed", "disque_trio/node/core/node.py"} <= names
    assert "packages/spark/pyspark_disque.py" in names
    assert more <= names
    assert not unwanted & names


def requirements(text: str) -> list[str]:
    """Return what METADATA requires for the extra ``spark``."""
    return [
        line.partition(": ")[2].partition(" ;")[0].partition(";")[0].strip()
        for line in text.splitlines()
        if line.startswith("Requires-Dist") and line.endswith('extra == "spark"')
    ]


def test_an_extra_is_installed_from_the_checkout(tree: Path, tmp_path: Path) -> None:
    (tree / "packages" / "spark").mkdir(parents=True)
    found = []
    for value in ("1", "0"):
        directory = tmp_path / value
        directory.mkdir()
        hook = "prepare_metadata_for_build_wheel"
        done = build(tree, hook, str(directory), DISQUE_TRIO_CHECKOUT=value)
        assert done.returncode == 0, done.stderr
        [metadata] = directory.rglob("METADATA")
        found += requirements(metadata.read_text())
    here = (tree / "packages" / "spark").as_uri()
    assert found == [f"disque-spark[pyspark] @ {here}", "disque-spark[pyspark]==0.2.0"]


def test_a_wheel_names_the_other_distributions_as_an_index_does(tree: Path, tmp_path: Path) -> None:
    (tree / "packages" / "spark").mkdir(parents=True)
    done = build(tree, "build_wheel", str(tmp_path), DISQUE_TRIO_COMPILE="0")
    assert done.returncode == 0, done.stderr
    with zipfile.ZipFile(only_wheel(tmp_path)) as archive:
        [name] = [name for name in archive.namelist() if name.endswith("/METADATA")]
        assert requirements(archive.read(name).decode()) == ["disque-spark[pyspark]==0.2.0"]
