"""Keys of segmentation that contradict others, or have no effect beside them: each message in whole."""

import pytest
from support.refusals import refusal_of

from paddlevit_dist.core.settings import load

LIMIT = (
    "(word): it limits DATA.{0}_SHORTEST_SIDE, which is not set; set DATA.{0}_SHORTEST_SIDE or remove "
    "DATA.{0}_LONGEST_SIDE"
)
WINDOWS = "SEGMENTATION.PROTOCOL slide SEGMENTATION.CROP [32,48] SEGMENTATION.STRIDE"
GAPS = "(word): windows of [32, 48] pixels (SEGMENTATION.CROP) would leave gaps"
HARD = "DATA.CROP_SIZE [20,30] SEGMENTATION.OHEM_THRESHOLD 0.7 SEGMENTATION.OHEM_MIN_KEPT"


def load_shapes(words):
    return load(["-cfg=segformer_b0_shapes", *words.split()]).notices


@pytest.mark.parametrize(
    "words, message",
    [
        (
            "DATA.SCALE_RANGE [2,1]",
            "DATA.SCALE_RANGE [2.0, 1.0] (word): expected the smaller number first, such as [1.0, 2.0]",
        ),
        ("DATA.EVAL_LONGEST_SIDE 50", f"DATA.EVAL_LONGEST_SIDE 50 {LIMIT.format('EVAL')}"),
        ("DATA.BASE_LONGEST_SIDE 50", f"DATA.BASE_LONGEST_SIDE 50 {LIMIT.format('BASE')}"),
        (
            "SEGMENTATION.CLASS_WEIGHTS [0,0]",
            "SEGMENTATION.CLASS_WEIGHTS [0.0, 0.0] (word): expected at least one above 0, or nothing is learned",
        ),
        ("SEGMENTATION.SCALES []", "SEGMENTATION.SCALES [] (word): expected at least one, such as [1.0]"),
        (f"{WINDOWS} [32,49]", f"SEGMENTATION.STRIDE [32, 49] {GAPS}"),
        (f"{WINDOWS} [33,20]", f"SEGMENTATION.STRIDE [33, 20] {GAPS}"),
    ],
)
def test_contradictions_name_both_sides(words, message):
    assert refusal_of(load_shapes, words) == message.replace("(word)", "(command line)")


@pytest.mark.parametrize(
    "words",
    [
        "DATA.SCALE_RANGE [1,1]",
        "DATA.BASE_LONGEST_SIDE 50 DATA.BASE_SHORTEST_SIDE 60",
        "SEGMENTATION.CLASS_WEIGHTS [0,0.1]",
        f"{WINDOWS} [32,48]",
        f"{HARD} 599",
    ],
)
def test_what_fits_together_is_silent(words):
    assert load_shapes(words) == []


@pytest.mark.parametrize(
    "words, notice",
    [
        (
            "SEGMENTATION.STRIDE [32,20]",
            "SEGMENTATION.STRIDE [32, 20] (word): no effect: there are no windows: SEGMENTATION.PROTOCOL whole "
            "(default)",
        ),
        (
            "SEGMENTATION.OHEM_MIN_KEPT 10",
            "SEGMENTATION.OHEM_MIN_KEPT 10 (word): no effect: all pixels count: SEGMENTATION.OHEM_THRESHOLD None "
            "(default)",
        ),
        (
            f"{HARD} 600",
            "SEGMENTATION.OHEM_THRESHOLD 0.7 (word): no effect: a crop has no more pixels than always count: "
            "SEGMENTATION.OHEM_MIN_KEPT 600 (word)",
        ),
    ],
)
def test_keys_without_effect_are_told_with_their_reason(words, notice):
    assert load_shapes(words) == [notice.replace("(word)", "(command line)")]
