"""Fixtures that all tests share."""

import gc
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# Before the imports of them.
pytest.register_assert_rewrite(
    "tests.support",
    *(f"packages.{one.name}.tests.support" for one in Path(__file__).parent.glob("packages/*")),
)

from disque_trio.respclient.log import lines_go_to  # noqa: E402
from tests.support import ROOT, missing  # noqa: E402
from tests.support.harness import (  # noqa: E402
    PATIENT,
    ClusterFactory,
    LiveNode,
    NodeFactory,
    Wire,
    free_port,
    join,
    start_process,
    wait_for_ping,
    wait_until,
)
from tests.support.spent import Spent  # noqa: E402

__all__ = ["LiveNode", "NodeFactory", "Wire", "free_port", "wait_until"]

# A shell starts what is in the background with SIGINT ignored, nohup with SIGHUP, and so would be
# what tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

# A busy machine is no failure; and a failure prints how to repeat it. With `make nightly`, property
# tests get many more examples.
for profile, examples in (("quick", 20), ("nightly", 1000)):
    settings.register_profile(
        profile,
        deadline=None,
        max_examples=examples,
        suppress_health_check=[HealthCheck.too_slow],
        print_blob=True,
    )
settings.load_profile("quick")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the Makefile."""
    group = parser.getgroup("disque-trio")
    group.addoption(
        "--compiled-only",
        metavar="PATHS",
        default="",
        help="folders and files, separated by spaces: of their tests, which the compiled build"
        " runs, run only those that are marked `pure`",
    )
    group.addoption(
        "--spent", metavar="FILE", type=Path, help="write the CPU seconds of each folder to FILE"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Collect garbage more rarely, which saves a seventh of the CPU time of unit tests, skip what
    cannot be imported here, and count CPU time if asked to."""
    gc.set_threshold(100_000, 20, 20)
    config.pluginmanager.register(missing)
    if file := config.getoption("--spent"):
        config.pluginmanager.register(Spent(file))


def _leave_to_the_compiled_build(paths: list[Path], items: list[pytest.Item]) -> list[pytest.Item]:
    """Take the tests below ``paths`` that are not marked ``pure`` from ``items``; returns them."""
    left: list[pytest.Item] = []
    taken: list[pytest.Item] = []
    for item in items:
        compiled = any(path in (item.path, *item.path.parents) for path in paths)
        (taken if compiled and not item.get_closest_marker("pure") else left).append(item)
    items[:] = left
    return taken


def _words(item: pytest.Item) -> list[str]:
    """The texts that the test is parametrized with."""
    parameters = item.callspec.params if hasattr(item, "callspec") else {}
    return [value for value in parameters.values() if isinstance(value, str)]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what the compiled build runs, mark what starts real processes, and say what stays
    in one process where several share the tests: what uses a fixture of its module, which is set
    up once, or the PostgreSQL, unless a folder has said so already."""
    paths = [ROOT / path for path in config.getoption("--compiled-only").split()]
    if left_out := _leave_to_the_compiled_build(paths, items):
        config.hook.pytest_deselected(items=left_out)
    for item in items:
        if "/live/" in item.nodeid:
            item.add_marker(pytest.mark.live)
        fixtures = item._fixtureinfo.name2fixturedefs  # type: ignore[attr-defined]
        if item.get_closest_marker("xdist_group"):
            continue
        if "postgres" in fixtures or "postgres" in _words(item):
            group = "postgres"
        elif any(one.scope == "module" for found in fixtures.values() for one in found):
            group = f"{item.path.parent.name}-{item.path.stem}"
        else:
            continue
        item.add_marker(pytest.mark.xdist_group(group))


def pytest_collection_finish() -> None:
    """Let the collector of garbage not look through all tests again and again."""
    gc.freeze()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    """Go on to collect garbage after a test that starts a node in this process: a node does so
    itself, and switches the collector off."""
    gc.enable()


@pytest.fixture(autouse=True)
def _no_command() -> Iterator[None]:
    """A command that ran in this process has left it: lines of libraries are not its own."""
    yield
    lines_go_to(None)


@pytest.fixture
def disque_server(tmp_path: Path) -> Iterator[NodeFactory]:
    """Starts nodes: ``disque_server("--hz", "100")``. They end with the test. A node works in
    ``tmp_path``, or while another one does in a directory of its own, unless ``cwd`` is given."""
    nodes: list[LiveNode] = []

    def start(*args: str, cwd: Path | None = None) -> LiveNode:
        busy = {node.directory for node in nodes if node.process.poll() is None}
        own = tmp_path / f"node-{len(nodes) + 1}"
        directory = cwd or (own if tmp_path in busy else tmp_path)
        directory.mkdir(exist_ok=True)
        file = list(args[:1]) if args and not args[0].startswith("--") else []
        rest = args[len(file) :]
        for _ in range(5):
            port = free_port()
            node = start_process(
                directory, port, *file, "--port", str(port), "--bind", "127.0.0.1", *rest
            )
            if wait_for_ping(node):
                nodes.append(node)
                return node
            if "cannot start" not in node.log.read_text():
                break
        raise RuntimeError(f"the node did not start: {node.log.read_text()}")

    yield start
    for node in nodes:
        node.close()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ClusterFactory]:
    """Starts nodes that are one cluster: ``cluster(3, "--appendonly", "yes")``. Each is connected
    to each when they are given back; they end with the test. They are patient: a test in which
    they must find out that one is dead calls ``notice_deaths``."""
    started: list[LiveNode] = []

    def launch(directory: Path, args: tuple[str, ...]) -> LiveNode:
        port = free_port()
        options = ("--port", str(port), "--bind", "127.0.0.1", *PATIENT, *args)
        return start_process(directory, port, *options)

    def start(count: int, *args: str) -> list[LiveNode]:
        directories = [tmp_path / f"member-{len(started) + n}" for n in range(count)]
        for directory in directories:
            directory.mkdir()
        nodes = [launch(directory, args) for directory in directories]
        for n, node in enumerate(nodes):
            while not wait_for_ping(node):
                # Somebody else was faster to take one of its ports.
                log = node.log.read_text()
                if "in use" not in log:
                    raise RuntimeError(f"the node did not start: {log}")
                node = nodes[n] = launch(directories[n], args)
            started.append(node)
        join(nodes)
        return nodes

    yield start
    for node in started:
        node.close()


@pytest.fixture
def node(disque_server: NodeFactory) -> LiveNode:
    """One node with default settings."""
    return disque_server()


@pytest.fixture
def wire(node: LiveNode) -> Wire:
    """A connection to ``node``."""
    return node.wire()
