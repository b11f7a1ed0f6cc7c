"""The nearest hashes are those of a slow search, whatever the number of queries and hashes at once."""

from types import SimpleNamespace

import numpy as np
import pytest

from paddlevit_dist.extensions.leakage import comparing
from paddlevit_dist.extensions.leakage.comparing import FIRST, NEAR, NEAREST, find_nearest


def flip(generator, number: int, bits: int) -> int:
    return number ^ sum(1 << int(bit) for bit in generator.choice(64, bits, replace=False))


def draw_hashes(generator, others: int) -> tuple[np.ndarray, np.ndarray]:
    """Queries (12, 3), and hashes of which each is some bits from the first or another variant of a query."""
    first = [int(generator.integers(0, 2**63)) for _ in range(12)]
    queries = [[one, *(flip(generator, one, bits) for bits in (9, 25))] for one in first]
    drawn = [
        flip(
            generator,
            queries[min(generator.integers(0, 14), 11)][generator.integers(3)],
            int(generator.integers(0, 30)),
        )
        for _ in range(others)
    ]
    return np.array(queries, np.uint64), np.array(drawn, np.uint64)


def search_slowly(queries, others) -> tuple[list, list]:
    places, distances = [], []
    for variants in queries:
        differing = (others[:, None] ^ variants).view(np.uint8).reshape(len(others), len(variants), 8)
        bits = np.unpackbits(differing, axis=2).sum(axis=2)
        near = np.flatnonzero((bits[:, 0] <= FIRST) & (bits.min(axis=1) <= NEAR))
        best = sorted((int(bits[place].min()), int(place)) for place in near)[:NEAREST]
        places.append([place for _, place in best] + [-1] * (NEAREST - len(best)))
        distances.append([distance for distance, _ in best] + [255] * (NEAREST - len(best)))
    return places, distances


@pytest.mark.parametrize("others, chunk", [(301, 512), (301, 5), (comparing.TILE + 9, 512), (1, 512)])
def test_the_nearest_come_first_and_no_more_than_eight(monkeypatch, others, chunk):
    steps = []

    def make_bar(total, label, shown):
        steps.append((total, label, shown))
        return SimpleNamespace(step=lambda: steps.append(1), close=lambda: steps.append("closed"))

    monkeypatch.setattr(comparing, "ProgressBar", make_bar)
    monkeypatch.setattr(comparing, "_CHUNK", chunk)
    queries, hashes = draw_hashes(np.random.default_rng(others), others)
    hashes[-1] = queries[-1, 0]  # the last of all, in a tile of nine
    part = hashes if others < 400 else np.concatenate([np.zeros(others - 309, np.uint64), hashes[-309:]])
    found = find_nearest(queries, part)
    number = -(-12 // chunk)  # the first step is without a bar
    assert steps == [(number, "comparing hashes", True), *[1] * (number - 1), "closed"]
    expected = search_slowly(queries, part)
    assert [table.tolist() for table in found] == list(expected)
    if others == 301:
        numbers = (np.array(expected[0]) >= 0).sum(axis=1)
        assert numbers.max() == NEAREST > numbers.min() > 0
    assert [table.shape for table in find_nearest(queries[:0], part)] == [(0, NEAREST)] * 2
    assert (find_nearest(queries, part[:0])[0] == -1).all()


@pytest.mark.parametrize(("bits", "of_variant", "is_near"), [(22, 13, True), (23, 13, False), (22, 14, False)])
def test_at_most_so_many_bits_of_the_image_and_of_a_variant_differ(bits, of_variant, is_near):
    other = (1 << bits) - 1
    queries = np.array([[0, other ^ ((1 << of_variant) - 1 << 40)]], np.uint64)
    places, distances = find_nearest(queries, np.array([other], np.uint64))
    assert (places[0, 0], distances[0, 0]) == ((0, of_variant) if is_near else (-1, 255))
