"""Samples of two tables are matched by their names, in any order."""

from types import SimpleNamespace

import pytest

from paddlevit_dist.extensions.compare import pairs, tables


@pytest.mark.parametrize("of_others", [False, True])
def test_samples_in_any_order_are_matched_by_their_names(of_others):
    order = [3, 0, 4, 1, 2]  # not its own inverse
    first = [f"val/{name}.png" for name in "ebdac"]
    second = [first[place] if not of_others else f"{first[place][4]}" for place in order]
    kinds = ["task", f"{tables.RESULTS}a file"] if of_others else ["task", "task"]
    given = [
        SimpleNamespace(names=names, about={"digest": kind, "of": kind}, run=kind)
        for names, kind in zip((first, second), kinds)
    ]
    found = pairs.match_names(*given)
    assert [first[row] for row in range(5)] == [
        f"val/{second[place][-5 if not of_others else 0]}.png" for place in found
    ]
    assert [order[place] for place in found] == list(range(5))
    back = pairs.match_names(*given[::-1])
    assert back.tolist() == order


def test_names_are_simplified_as_little_as_makes_them_equal():
    numbered = ["0.png", "1.png"]
    for first, second, expected in (
        (["a/0.png", "a/1.png"], ["b/1.png", "b/0.png"], (numbered, numbered[::-1])),
        (["a/0.png", "a/1.png"], ["b/1.jpg", "0"], (["0", "1"], ["1", "0"])),
        (["a/0.png", "a/1.png"], ["a/1.png", "a/0.png"], None),
        (["a/0.png", "a/1.png"], ["b/2.png", "b/0.png"], None),  # another sample
        (["a/0.png", "b/0.png"], ["c/0.png", "d/0.png"], None),  # two would have one name
    ):
        assert pairs.simplify_names(first, second) == (expected or (first, second))
