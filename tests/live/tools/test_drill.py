"""The drill: incidents are told of, and cured by the commands of the pages."""

import json

import pytest

from tests.support.drill import run
from tests.support.drill.watch import ALERT, CHECK, CLIENT, CONSOLE, INFO, LOG, METRICS

pytestmark = [pytest.mark.load, pytest.mark.timeout(300)]


def told(capsys: pytest.CaptureFixture[str], incident: str, *options: str) -> set[str]:
    """Play an incident; return the places that told of it."""
    status = run.main(["--incident", incident, "--json", *options])
    result = json.loads(capsys.readouterr().out)
    assert (status, result["right"]) == (0, True), result
    assert result["green"] is not None
    return {channel for channel, _, _ in result["told"]}


def test_all_places_tell_that_memory_is_full_and_the_page_cures_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert told(capsys, "d") == {ALERT, CHECK, CLIENT, CONSOLE, INFO, LOG, METRICS}


def test_the_log_tells_of_a_purge_and_the_page_brings_the_jobs_back(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert told(capsys, "h") == {LOG}
