"""Lists of typed values round-trip; wrong lengths are refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from disque_trio.protocol.fields import (
    Field,
    FieldsError,
    pack_fields,
    pack_number,
    pack_texts,
    unpack_fields,
    unpack_number,
    unpack_texts,
)

fields = st.lists(st.tuples(st.integers(0, 255), st.binary(max_size=40)), max_size=6)
texts = st.lists(st.binary(max_size=40), max_size=6)


@given(fields)
def test_fields_come_out_as_they_went_in(values: list[Field]) -> None:
    assert unpack_fields(pack_fields(values)) == values


@given(texts)
def test_texts_come_out_as_they_went_in(values: list[bytes]) -> None:
    assert unpack_texts(pack_texts(values)) == values


@given(st.integers(0, 2**64 - 1))
def test_numbers_come_out_as_they_went_in(number: int) -> None:
    assert unpack_number(pack_number(number)) == number


@pytest.mark.parametrize(("number", "cut"), [(-1, 0), (2**64, 2**64 - 1), (10**30, 2**64 - 1)])
def test_a_number_beyond_64_bits_is_cut_to_them(number: int, cut: int) -> None:
    assert unpack_number(pack_number(number)) == cut


@pytest.mark.parametrize("size", [0, 7, 9])
def test_a_number_of_another_length_is_refused(size: int) -> None:
    with pytest.raises(FieldsError):
        unpack_number(bytes(size))


@given(fields.filter(bool), st.data())
def test_cut_fields_are_fewer_or_refused(values: list[Field], data: st.DataObject) -> None:
    packed = pack_fields(values)
    end = data.draw(st.integers(0, len(packed) - 1))
    borders = [len(pack_fields(values[:count])) for count in range(len(values))]
    if end in borders:
        assert unpack_fields(packed[:end]) == values[: borders.index(end)]
    else:
        with pytest.raises(FieldsError):
            unpack_fields(packed[:end])


@pytest.mark.parametrize("length", [1, 2**31, 2**32 - 1])
def test_a_length_past_the_end_is_refused(length: int) -> None:
    lie = length.to_bytes(4, "little")
    with pytest.raises(FieldsError):
        unpack_fields(b"\1" + lie)
    with pytest.raises(FieldsError):
        unpack_texts(lie)


@given(st.binary(max_size=60))
def test_any_bytes_are_a_list_or_refused(data: bytes) -> None:
    try:
        assert pack_fields(unpack_fields(data)) == data
    except FieldsError:
        pass
    try:
        assert pack_texts(unpack_texts(data)) == data
    except FieldsError:
        pass
