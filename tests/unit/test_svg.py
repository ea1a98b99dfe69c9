"""What charts consist of."""

from xml.etree import ElementTree

import pytest

from disque_trio import svg


def test_an_element_has_attributes_and_text_is_escaped() -> None:
    made = svg.text(1, 2, "a < b", class_="x", text_anchor="end", fill=None)
    assert made == '<text x="1.0" y="2.0" class="x" text-anchor="end">a &lt; b</text>'
    assert "<title>&lt;0.01</title>" in svg.area(0, 0, 1, 1, "<0.01")


def test_a_path_begins_again_after_a_gap() -> None:
    assert svg.line([(0, 1), (2, 3), None, (4, 5.55)]) == "M0.0 1.0L2.0 3.0M4.0 5.5"


@pytest.mark.parametrize(
    ("most", "least_step", "found"),
    [
        (0.0, 0.0, [0, 1]),
        (1.0, 0.0, [0, 0.5, 1]),
        (3.0, 1.0, [0, 1, 2, 3]),
        (7.0, 0.0, [0, 2, 4, 6, 8]),
        (100.0, 0.0, [0, 50, 100]),
        (1e6, 1.0, [0, 5e5, 1e6]),
    ],
)
def test_an_axis_has_round_numbers_up_to_the_highest_value(
    most: float, least_step: float, found: list[float]
) -> None:
    assert svg.ticks(most, least_step) == found


def test_a_logarithmic_axis_has_at_least_two_numbers() -> None:
    known = [1, 10, 100, 1000]
    assert svg.log_ticks(5, 50, known) == [1, 10, 100]
    assert svg.log_ticks(10, 10, known) == [10, 100]
    assert svg.log_ticks(5000, 9000, known) == [100, 1000]
    assert svg.log_ticks(0.1, 0.2, known) == [1, 10]


def test_values_are_drawn_inside_of_the_panel() -> None:
    panel = svg.Panel((10, 0, 110, 50), (0, 10), (1, 100), "y")
    assert [panel.x(value) for value in (-1, 0, 5, 10, 11)] == [10, 10, 60, 110, 110]
    assert [panel.y(value) for value in (0, 1, 10, 100, 1000)] == [50, 50, 25, 0, 0]


def test_a_label_near_the_edge_of_the_picture_ends_there() -> None:
    panel = svg.Panel((0, 0, 100, 50), (0, 10), (0, 1))
    first, last = (ElementTree.fromstring(panel.label(at, "now", 9, 110)) for at in (5, 10))
    assert (first.get("x"), first.get("y"), first.get("text-anchor")) == ("50.0", "59.0", "middle")
    assert (last.get("x"), last.get("text-anchor")) == ("110.0", "end")


def test_an_axis_has_a_line_and_a_number_for_each_mark() -> None:
    panel = svg.Panel((20, 0, 100, 50), (0, 1), (0, 2))
    assert panel.axis([(1, "one")]) == [
        '<line x1="20.0" y1="25.0" x2="100.0" y2="25.0" class="rule"/>',
        '<text x="14.0" y="29.0" text-anchor="end">one</text>',
    ]


def test_a_bar_has_its_name_and_its_value() -> None:
    name, shape, value = map(ElementTree.fromstring, svg.bar(50, 0, 30, 16, "a", "7", fill="red"))
    assert (name.text, name.get("x"), value.text, value.get("x")) == ("a", "44.0", "7", "85.0")
    assert (shape.get("width"), shape.get("fill")) == ("30.0", "red")
