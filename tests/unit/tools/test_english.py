"""The phrases that `make lint` complains about."""

from pathlib import Path

import pytest
import yaml

from tools import english

BAD = " ".join(["end", "to", "exist"])  # in pieces, since the linter reads this file


def found(text: str, name: str = "page.md") -> list[str]:
    return [line.partition(": ")[2] for line in english.complaints(Path(name), text)]


def test_it_says_where_a_phrase_is_and_what_to_write() -> None:
    [line] = english.complaints(Path("page.md"), f"# Title\n\nJobs {BAD}.\n")
    assert line.startswith("page.md:3:")
    assert line.endswith(f"'{BAD}': ends, expires")


@pytest.mark.parametrize("name", ["code.py", "disque.conf", "start.sh"])
def test_a_phrase_may_go_on_in_the_next_line_of_a_comment(name: str) -> None:
    assert len(found("# Jobs end to\n# exi" + "st.\n", name)) == 1


@pytest.mark.parametrize(
    "code",
    ["`{}`", "```\n{}\n```", "```python\nx\n{}\n```", "text\n\n    {}\n\ntext", "[link](#{})"],
)
def test_code_in_markdown_is_passed_over_and_what_follows_is_not(code: str) -> None:
    text = code.format(BAD)
    assert found(text) == []
    assert len(found(f"{text}\n\nJobs {BAD}.\n")) == 1


def test_what_is_quoted_counts_too() -> None:
    assert len(found(f'x = "jobs {BAD}"\n', "code.py")) == 1


def test_checks_of_proselint_are_for_markdown() -> None:
    text = "We did it at the end of the da" + "y.\n"
    assert found(text)
    assert found(text, "code.py") == []


def test_each_phrase_of_the_list_has_a_better_one() -> None:
    phrases = yaml.safe_load(english.LIST.read_text())["phrases"]
    assert all(isinstance(better, str) and better for better in phrases.values())


def test_the_status_says_whether_anything_was_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good, bad = tmp_path / "good.md", tmp_path / "bad.md"
    good.write_text("Jobs end.\n")
    bad.write_text(f"Jobs {BAD}.\n")
    assert english.main([str(good)]) == 0
    assert english.main([str(good), str(bad)]) == 1
    assert capsys.readouterr().out.count("\n") == 1
