"""What neither imports nor the strings in the sources tell, stated by hand."""

import fnmatch
import tomllib

PROJECTS = ("pyproject.toml", "packages/*/pyproject.toml")
# Tables of pyproject.toml that only `make lint` reads.
OF_LINT = {"codespell", "mypy", "ruff"}

# A change of these can change any test: what all tests share, and what is compiled.
EVERYTHING = ("conftest.py", "setup.py", "tools/packaging/*.py")

# What only `make`, people and machines read, besides tests that name it.
UNTESTED = (
    *PROJECTS,
    *("*.md", "*LICENSE", "*/imports.toml", "MANIFEST.in", "*Makefile"),
    *("tools/setup.sh", "tools/packaging/*.sh"),
    *(".ci/*", ".dockerignore", ".github/*", ".gitignore", ".pre-commit-config.yaml"),
    *("benchmarks/*", "tools/*", "examples/*/package-lock.json"),
)

# Files that are read, of which no string tells it.
READ = {
    # They import the module that is named after a run.
    "benchmarks/__main__.py": ("benchmarks/",),
    "tools/bench/__main__.py": ("tools/bench/",),
    # For `python -c`.
    "tests/support/commands.py": ("tests/support/program.py",),
    # For `disque-worker`.
    "tests/support/worker_rig.py": ("tests/support/forked_worker.py",),
    # It builds copies of the tree.
    "tests/live/packaging/test_build_backend.py": ("disque_trio/", "docs/", "config/"),
    # It looks at all sources.
    "tests/live/packaging/test_types.py": ("disque_trio/",),
    # PySpark imports the module that is named after a format.
    "packages/spark/tests/live/conftest.py::spark": (
        "packages/spark/pyspark_disque.py",
        "packages/spark/pyspark_disque_aof.py",
        "packages/spark/pyspark_disque_events.py",
        "packages/spark/pyspark_disque_jobs.py",
        "packages/spark/pyspark_disque_queues.py",
    ),
}
# A pattern that stands for the distributions, not for what they contain.
HOUSES = "packages/*"
# Folders that these read files of, whose names are in those who call them.
NAMED_BY_CALLERS = {"tests/support/documented.py": "docs/"}

# Files with programs and commands, and the tests that run what they read.
PROGRAMS = ("docs/*", "packages/*/docs/*", "examples/*", "README.md", "config/container/*")
RUNNING = ("tests/interop/*", "*tests/live/*", "tests/unit/docs/test_typable.py")
# What takes so long that no test runs it as a page says.
LONG = ("benchmarks/*", "tools/*")

# These know all servers, but run only the one that their user names.
SERVES_OTHERS = ("tests/support/commands.py", "tests/support/fork_server.py")

# This names files in order to look for them.
NAMELESS = ("tools/affected/*",)


def matches(path: str, patterns: tuple[str, ...]) -> bool:
    """Whether a path matches one of the patterns, in which ``*`` also matches slashes."""
    return any(fnmatch.fnmatch(path, pattern) for pattern in patterns)


def changes_environment(before: str, after: str) -> bool:
    """Whether pyproject.toml changed in more than the settings of linters."""

    def rest(text: str) -> dict[str, object]:
        tables = tomllib.loads(text)
        tools = {name: one for name, one in tables.get("tool", {}).items() if name not in OF_LINT}
        return {**tables, "tool": tools}

    return rest(before) != rest(after)
