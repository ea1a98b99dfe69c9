"""Requests with wrong words are answered as they always were, byte for byte, and show no more of
passwords."""

import pytest

from tests.support.wrong_words import outcomes, recorded


@pytest.mark.parametrize("product", [pytest.param("node", marks=pytest.mark.slow), "bananaq"])
def test_no_reply_has_changed(product: str) -> None:
    requests = list(recorded(product))
    now = outcomes(product, [words for words, _ in requests])
    for (words, before), outcome in zip(requests, now, strict=True):
        assert outcome == before, " ".join(words)
