"""Ranges of a search: what they draw, and which words are refused."""

import pytest

from paddlevit_dist import UserError
from paddlevit_dist.extensions.compare.search_space import parse_range, take_ranges

distributions = pytest.importorskip("optuna").distributions


@pytest.mark.parametrize(
    ("word", "expected", "values"),
    [
        ("TRAIN.BASE_LR=1e-4..1e-2:log", distributions.FloatDistribution(1e-4, 1e-2, log=True), None),
        ("TRAIN.WEIGHT_DECAY=0..0.1", distributions.FloatDistribution(0, 0.1), None),
        ("TRAIN.WARMUP_STEPS=10..12", distributions.IntDistribution(10, 12), [10, 11, 12]),
        ("MODEL.OPTIONS.width=8..10", distributions.IntDistribution(8, 10), [8, 9, 10]),
        ("MODEL.OPTIONS.ratio=0..1.5", distributions.FloatDistribution(0, 1.5), None),
        ("MODEL.OPTIONS.pool=max|null", distributions.CategoricalDistribution(("max", "null")), ["max", "null"]),
        ("TRAIN.OPTIMIZER.NAME=SGD|AdamW", distributions.CategoricalDistribution(("SGD", "AdamW")), ["SGD", "AdamW"]),
        ("MODEL.DROPPATH=0|0.1|0.2", distributions.CategoricalDistribution(("0", "0.1", "0.2")), ["0", "0.1", "0.2"]),
    ],
)
def test_a_range_has_values_of_its_key(word, expected, values):
    found = parse_range(word)
    assert found.get_distribution(distributions) == expected
    assert found.list_values() == values if values is None else list(found.list_values()) == values


@pytest.mark.parametrize(
    ("word", "value", "expected"),
    [
        ("TRAIN.BASE_LR=1e-4..1e-2:log", 0.00123456789, "TRAIN.BASE_LR=0.00123457"),
        ("TRAIN.MODEL_EMA_DECAY=0.9..0.99999999", 0.99999998, "TRAIN.MODEL_EMA_DECAY=0.99999998"),
        ("TRAIN.WARMUP_STEPS=10..12", 11, "TRAIN.WARMUP_STEPS=11"),
        ("MODEL.DROPPATH=0|0.1|0.2", "0.1", "MODEL.DROPPATH=0.1"),
    ],
)
def test_a_value_is_a_word_of_the_command_line(word, value, expected):
    assert parse_range(word).format(value) == expected


@pytest.mark.parametrize("word", ["TRAIN.BASE_LR=1e-3", "-output=a..b", "TRAIN.BASE_LR", "-cfg=../x.yaml", "a..b"])
def test_other_words_are_of_the_training_runs(word):
    assert parse_range(word) is None


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("TRAIN.LEARNING=1..2", "TRAIN.LEARNING is not a known key: the closest is TRAIN."),
        ("TRAIN.BASE_LR=1e-2..1e-4", "expected a smaller number before a larger one"),
        ("TRAIN.WEIGHT_DECAY=0..1:log", "above 0 with :log"),
        ("TRAIN.BASE_LR=-1..1", "TRAIN.BASE_LR cannot be -1"),
        ("TRAIN.OPTIMIZER.NAME=SGD..AdamW", r"expected two numbers, such as TRAIN.OPTIMIZER.NAME=1..10, or choices"),
        ("TRAIN.WARMUP_STEPS=3..3", "expected a smaller number before a larger one"),
        ("TRAIN.OPTIMIZER.NAME=SGD|Magic", "TRAIN.OPTIMIZER.NAME cannot be Magic"),
    ],
)
def test_wrong_ranges_are_one_line(word, message):
    with pytest.raises(UserError, match=message) as caught:
        parse_range(word)
    assert "\n" not in str(caught.value)


def test_ranges_are_written_as_other_values_are():
    words = "-cfg=vit_digits TRAIN.BASE_LR 1e-4..1e-2:log -epochs=3..5 --batch-size 4|8 DATA.DATA_PATH=a/../b|c -seed 3"
    ranges, others = take_ranges([*words.split(), "-output=a..b", "TRAIN.GRAD_CLIP", "1"])
    assert [found.word for found in ranges] == [
        "TRAIN.BASE_LR=1e-4..1e-2:log",
        "TRAIN.NUM_EPOCHS=3..5",
        "DATA.BATCH_SIZE=4|8",
    ]
    assert others == "-cfg=vit_digits DATA.DATA_PATH=a/../b|c -seed 3 -output=a..b TRAIN.GRAD_CLIP 1".split()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            "-epochs=3..5 TRAIN.NUM_EPOCHS 6..9",
            "TRAIN.NUM_EPOCHS=6..9: TRAIN.NUM_EPOCHS has another range, too: keep one",
        ),
        ("-epoch=3..5", "-epoch is not a known flag: write -epochs=N"),
        ("TRAIN.BASE_LR", "TRAIN.BASE_LR needs a value"),
        ("-epochs=5..3", "TRAIN.NUM_EPOCHS=5..3: expected a smaller number before a larger one"),
    ],
)
def test_wrong_words_are_one_line(words, message):
    with pytest.raises(UserError, match=message) as caught:
        take_ranges(words.split())
    assert "\n" not in str(caught.value)
