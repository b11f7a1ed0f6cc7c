"""Ranges of a search: what they draw, and which words are refused."""

import pytest

from paddlevit_dist.compare.search_space import parse_range
from paddlevit_dist.runtime.errors import UserError


class Middle:
    """A trial of Optuna that returns what it is asked for."""

    def suggest_float(self, name, low, high, log):
        return (low * high) ** 0.5 if log else (low + high) / 2

    def suggest_int(self, name, low, high, log):
        return (low + high) // 2

    def suggest_categorical(self, name, choices):
        return choices[-1]


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("TRAIN.BASE_LR=1e-4..1e-2:log", "0.001"),
        ("TRAIN.WEIGHT_DECAY=0..0.1", "0.05"),
        ("TRAIN.WARMUP_STEPS=10..20", "15"),
        ("TRAIN.OPTIMIZER.NAME=SGD|AdamW", "AdamW"),
        ("MODEL.DROPPATH=0|0.1|0.2", "0.2"),
    ],
)
def test_a_range_draws_values_of_its_key(word, value):
    assert parse_range(word).suggest(Middle()) == value


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
        ("TRAIN.OPTIMIZER.NAME=SGD|Magic", "TRAIN.OPTIMIZER.NAME cannot be Magic"),
    ],
)
def test_wrong_ranges_are_one_line(word, message):
    with pytest.raises(UserError, match=message) as caught:
        parse_range(word)
    assert "\n" not in str(caught.value)
