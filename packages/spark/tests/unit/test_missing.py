"""The command where Spark is not installed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from disque_spark.classic import check_java
from disque_trio.extras import how_to_install

COMMANDS = {
    "audit": ["x", "--output", "y"],
    "report": ["x"],
    "archive": ["--queue", "q", "--output", "y"],
    "replay": ["--archive", "x"],
}
HIDDEN = """
import runpy, sys
for name in ("pyspark", "py4j", "pyarrow", "pandas", "numpy"):
    sys.modules[name] = None
runpy.run_module("disque_spark.pipeline", run_name="__main__")
"""


def run(*words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", HIDDEN, *words], capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_says_in_one_line_what_to_install(command: str) -> None:
    done = run(command, *COMMANDS[command])
    assert (done.returncode, done.stdout) == (1, "")
    assert how_to_install("audit" if command == "audit" else "spark") in done.stderr
    assert done.stderr.count("\n") == 1


def test_help_needs_no_spark() -> None:
    done = run("--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert all(command in done.stdout for command in COMMANDS)
    assert run("archive", "--help").returncode == 0


def test_the_hint_installs_the_extra() -> None:
    words = how_to_install("spark").split()
    assert words[:4] == [sys.executable, "-m", "pip", "install"]
    assert words[-1].rstrip("'").endswith("[spark]")


def test_the_sources_say_what_to_install() -> None:
    program = HIDDEN.partition("runpy.run_module")[0] + (
        "import disque_spark as spark\n"
        "for use in (spark.sources, lambda: spark.ack, lambda: spark.register(None)):\n"
        "    try:\n"
        "        use()\n"
        "    except ImportError as problem:\n"
        "        print(problem)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.count(how_to_install("spark")) == 3


def test_a_java_is_looked_for_before_spark_does(tmp_path: Path) -> None:
    home = tmp_path / "jvm"
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    with pytest.raises(OSError, match="no Java at JAVA_HOME"):
        check_java({"JAVA_HOME": str(home), "PATH": os.environ["PATH"]})
    with pytest.raises(OSError, match="Spark needs Java 17 or later"):
        check_java({"PATH": str(tmp_path)})
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\" 2019-01-15' >&2\n")
    java.chmod(0o755)
    for environment in ({"JAVA_HOME": str(home)}, {"PATH": str(java.parent)}):
        with pytest.raises(OSError, match="is Java 11"):
            check_java(environment)
    (home / "release").write_text('IMPLEMENTOR="x"\nJAVA_VERSION="1.8.0_292"\n')
    with pytest.raises(OSError, match="is Java 8"):
        check_java({"JAVA_HOME": str(home)})
    (home / "release").write_text('JAVA_RUNTIME_VERSION="21.0.1+12"\nJAVA_VERSION="21.0.1"\n')
    check_java({"JAVA_HOME": str(home)})
