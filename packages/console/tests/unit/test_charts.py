"""The charts."""

import pytest

from disque_console.web.charts import Line, chart
from disque_trio.overview.series import Series


@pytest.mark.parametrize(("known", "minutes"), [(100, 4), (600, 20), (1300, 60), (9000, 60)])
def test_a_chart_is_as_long_as_its_history(known: int, minutes: int) -> None:
    series = Series(5.0, 720, ("added",), ())
    series.add(1000.0, {}, {})
    for moment in range(2, known, 2):
        series.add(1000.0 + moment, {"added": 4}, {}, since=998.0 + moment)
    drawn = chart(series, [Line("added", "added")], 1000.0 + known, "Jobs per second")
    assert f"\N{MINUS SIGN}{minutes} min" in drawn
    assert "added 2.0" in drawn


def test_an_empty_chart_shows_an_hour() -> None:
    assert "\N{MINUS SIGN}60 min" in chart(None, [Line("added", "added")], 0.0, "Jobs per second")
