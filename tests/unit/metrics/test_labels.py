"""Labels for names that clients chose."""

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from disque_trio.metrics.labels import MOST, escape, label_value
from disque_trio.metrics.sheet import Sheet, pairs


def parsed(label: str) -> str:
    """Return ``label`` as Prometheus parses it."""
    sheet = Sheet()
    family = sheet.gauge("x", "text")
    family.add(1, pairs({"queue": label}))
    page = b"".join(family.blocks()).decode()
    [found] = text_string_to_metric_families("# TYPE x gauge\n" + page)
    [sample] = found.samples
    return str(sample.labels["queue"])


@given(
    st.text(
        min_size=1, max_size=40, alphabet=st.characters(codec="utf-8", categories=["L", "P", "Zs"])
    )
)
def test_a_name_that_is_text_is_its_own_label(name: str) -> None:
    assert label_value(name.encode()) == name or "#" in name
    assert parsed(name) == name


def test_lines_quotes_and_backslashes_are_escaped() -> None:
    for name in ('a"b', "a\\b", "a\nb", 'a\\"\n', "\\n", "ä", "{queue=}", "a\tb"):
        assert label_value(name.encode()) == name
        assert parsed(name) == name


def test_a_name_adds_no_line_ends_or_zero_bytes_to_a_page() -> None:
    for name in (b"\0", b"a\rb", b"\x1b[2J", "\u2028".encode(), "\x85".encode(), b"\x0b"):
        label = label_value(name)
        assert len(escape(label).splitlines()) == 1
        assert "\0" not in label


def test_similar_names_have_different_labels() -> None:
    names = [b"", b"a\0", b"a\\x00", b"\xff", b"\\xff", b"x" * 64_000, b"x" * 64_001, b"x" * MOST]
    names += [label_value(name).encode() for name in names]
    labels = [label_value(name) for name in dict.fromkeys(names)]
    assert len(set(labels)) == len(labels)
    assert all(labels)
    assert max(map(len, labels)) < 5 * MOST


@given(st.binary(max_size=300), st.binary(max_size=300))
def test_two_names_never_have_one_label(one: bytes, other: bytes) -> None:
    assert (label_value(one) == label_value(other)) == (one == other)
    assert parsed(label_value(one)) == label_value(one)
