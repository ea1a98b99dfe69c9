"""In this project, tests are selected that a change can reach."""

import pytest

from tests.support import ROOT
from tools.affected import changes, rules
from tools.affected.graph import Graph

# Modules of this project, and the beginning of the names of tests that start them.
LIVE = "packages/integrations/tests/live/"
SERVED = {
    "packages/console/disque_console/web/app.py": "packages/console/tests/live/",
    "packages/integrations/disque_integrations/celery/transport.py": f"{LIVE}test_celery",
    "disque_trio/node/main.py": "tests/live/client/",
    "disque_trio/worker/child.py": "tests/live/worker/",
}

# Modules that few tests reach, although all tests share the helpers that know all commands.
RARE = (
    "benchmarks/tls.py",
    "disque_trio/cli/main.py",
    "packages/console/disque_console/web/charts.py",
    "packages/spark/disque_spark/report/plots.py",
)


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="the files of the project are not known")
def test_in_this_project_each_file_has_tests_and_servers_reach_theirs() -> None:
    paths = changes.files(ROOT)
    graph = Graph(ROOT, paths)
    unknown = [path for path in paths if not graph.is_read(path)]
    assert [path for path in unknown if not rules.matches(path, rules.UNTESTED)] == []
    for path, tests in SERVED.items():
        assert {test for test in graph.tests if test.startswith(tests)} <= {
            *graph.reached_from([path])
        }
    for path in RARE:
        assert 0 < len(graph.reached_from([path])) < len(graph.tests) / 5, path


def test_what_the_rules_name_is_there() -> None:
    named = (*rules.READ, *rules.NAMED_BY_CALLERS, *rules.SERVES_OTHERS)
    assert [node for node in named if not (ROOT / node.partition("::")[0]).is_file()] == []
