"""Commands print one line for an error that nobody expected."""

import pytest

from disque_trio.process.one_line import line_of, one_line
from disque_trio.worker.target import AppError, load


@one_line("disque-thing")
def main(arguments: list[str]) -> int:
    if arguments[0] == "well":
        return 3
    raise ExceptionGroup("one", [ValueError("two\nlines")])


def test_an_error_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["well"]) == 3
    assert main(["badly"]) == 1
    said = capsys.readouterr()
    assert said.err == "disque-thing: ValueError: two lines (--debug shows where)\n"
    assert said.out == ""
    with pytest.raises(ExceptionGroup):
        main(["badly", "--debug"])


def test_an_error_without_text_is_its_type() -> None:
    assert line_of(KeyError()) == "KeyError"
    assert line_of(ExceptionGroup("many", [KeyError(), KeyError()])).startswith("ExceptionGroup: ")


def test_a_broken_app_says_where_it_broke(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("apps")
    (folder / "broken_app_of_lines.py").write_text("\nno_such_name\n")
    with pytest.raises(AppError) as caught:
        load("broken_app_of_lines:app", str(folder))
    place = f"{folder / 'broken_app_of_lines.py'}:2"
    line = caught.value.line(debug=False)
    assert line.endswith(f"({place}; --debug shows the traceback)")
    assert "\n" not in line
    assert caught.value.line(debug=True).endswith(f"({place})")
    assert AppError("no").line(debug=False) == "no"
