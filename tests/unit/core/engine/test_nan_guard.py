"""Skipped updates are counted and told; what is kept of tensors, their digest, and the first that is not finite."""

import hashlib
import struct
import zlib

import numpy as np
import paddle
import pytest
from support.refusals import refusal_of

from paddlevit_dist import UserError
from paddlevit_dist.core.engine.nan_guard import (
    SCALER_SKIPS,
    BufferSnapshot,
    NonFiniteGuard,
    not_finite,
    weights_digest,
)
from paddlevit_dist.core.tasks.step_types import LossTerm, StepPosition


@pytest.mark.parametrize("number", [1, 3])
def test_what_is_kept_comes_back_bit_for_bit_and_takes_one_copy_for_each_dtype(number, other_paddle):
    shapes = [[4], [], [2, 3], [0]][:number]
    draws = np.random.default_rng(0)
    values = [draws.normal(size=shape).astype(dtype) for shape in shapes for dtype in ("float32", "float16", "int64")]
    values += [np.array([True, False]), np.array([np.nan, -0.0, np.inf], np.float32)]
    tensors, copies, plain = [paddle.to_tensor(value) for value in values], [], paddle.concat
    other_paddle({"concat": lambda tensors: copies.append(len(tensors)) or plain(tensors), "Tensor.clone": None})
    kept = BufferSnapshot(tensors)
    assert sorted(copies) == sorted([number + 1, number, number, 1])
    for tensor in tensors:
        paddle.assign(paddle.ones_like(tensor), output=tensor)
    kept.restore()
    assert [tensor.numpy().tobytes() for tensor in tensors] == [value.tobytes() for value in values]


@pytest.mark.parametrize("layer", [paddle.nn.GRU, paddle.nn.LSTM])
def test_buffers_that_recurrent_layers_have_not_filled_are_left_alone(layer):
    network = layer(3, 4)
    before = {name: value.numpy() for name, value in network.state_dict().items()}
    kept = BufferSnapshot([*network.parameters(), *network.buffers()])
    for parameter in network.parameters():
        paddle.assign(paddle.ones_like(parameter), output=parameter)
    kept.restore()
    assert all((network.state_dict()[name].numpy() == value).all() for name, value in before.items())


def test_a_loss_scaler_may_skip_many_more(capsys):
    skipped = NonFiniteGuard(2, has_scaler=True, log=print)
    for update in range(2 + SCALER_SKIPS - 1):
        skipped.count(False, StepPosition(1, update, 100))
    skipped.count(True, StepPosition(1, 60, 100))
    for update in range(61, 61 + 2 + SCALER_SKIPS - 1):
        skipped.count(False, StepPosition(1, update, 200))
    assert capsys.readouterr().out == ""
    assert SCALER_SKIPS == 50
    with pytest.raises(UserError, match=f"nor were the {1 + SCALER_SKIPS} before"):
        skipped.count(False, StepPosition(1, 199, 200))


def test_each_skip_is_told_and_the_last_with_its_explanation():
    said, asked = [], []
    explain = [lambda *parts: asked.append(parts) or ["layer 3"], lambda *parts: ["sample 7"]]
    guard = NonFiniteGuard(3, explain=explain, log=said.append)
    guard.load_state_dict({"total": 4, "in_a_row": 1})
    guard.count(False, StepPosition(2, 11, 100))
    assert said == [
        "the loss or a gradient of update 12 in epoch 2 is not finite: skipped, 2 in a row "
        "(TRAIN.MAX_SKIPPED_UPDATES 3), 5 so far"
    ]
    assert refusal_of(guard.count, False, StepPosition(2, 12, 100), ["batch"], "counts") == (
        "the loss or a gradient of update 13 in epoch 2 is not finite, nor were the 2 before: training has "
        "diverged, and nothing has changed since then; lower TRAIN.BASE_LR, set TRAIN.GRAD_CLIP or a longer warm-up, "
        "and -resume=auto from the last checkpoint; layer 3"
    )
    assert said[1:] == ["layer 3", "sample 7"] and asked == [(["batch"], StepPosition(2, 12, 100), "counts")]
    assert guard.state_dict() == {"total": 6, "in_a_row": 3}
    for limit, words in ((1, "finite: training"), (2, "finite, nor was the one before: training")):
        guard = NonFiniteGuard(limit)
        with pytest.raises(UserError, match=words):
            for update in range(limit):
                guard.count(False, StepPosition(1, update, 100))
    with pytest.raises(UserError, match="update 1 in epoch 1 is not finite: training"):
        NonFiniteGuard().count(False, StepPosition(1, 0, 100))


def test_terms_of_a_user_that_are_not_finite_are_named():
    lines, sums = [], {"loss": 2.0, "tversky": np.nan, "shown": np.inf}
    terms = [
        {name: LossTerm(paddle.to_tensor(value), 1, float(name != "shown")) for name, value in part.items()}
        for part in (sums, {**sums, "tversky": 1.0})
    ]
    guard = NonFiniteGuard(limit=2, log=lines.append)
    guard.count(False, StepPosition(1, 0, 9), terms=terms)
    assert lines[0].endswith("(TRAIN.MAX_SKIPPED_UPDATES 2), 1 so far; the loss term 'tversky' is nan")
    line = refusal_of(guard.count, False, StepPosition(1, 1, 9), (), None, terms)
    assert line.endswith("; the loss term 'tversky' is nan")
    guard = NonFiniteGuard(limit=2, log=lines.append)
    guard.count(False, StepPosition(1, 0, 9), terms=[{"loss": terms[0]["loss"]}])
    assert lines[1].endswith("1 so far")


def test_a_digest_is_of_the_sum_of_words_and_the_checksum():
    array = np.arange(5, dtype=np.float32).reshape(1, 5)  # 20 bytes: two words of 8
    total = sum(struct.unpack("<2Q", array.tobytes()[:16])) % 2**64
    text = f"a (1, 5) {total} {zlib.crc32(array.tobytes())}\nb () 0 {zlib.crc32(bytes(4))}\n"
    expected = hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
    assert weights_digest({"b": np.float32(0).reshape([]), "a": array}) == expected


def test_a_digest_tells_every_bit_place_and_name():
    array = np.arange(999, dtype=np.float32)
    others = [array[::-1], array.reshape(27, 37), np.where(array == 998, np.nextafter(array, 0), array), array[:-1]]
    digests = [weights_digest({"weight": value}) for value in (array, *others)] + [weights_digest({"bias": array})]
    assert len(set(digests)) == 6
    assert weights_digest({"weight": array.copy()}) == digests[0]


@pytest.mark.parametrize("values", [[np.nan], [np.inf], [np.inf, -np.inf], [3e38, 3e38, -np.inf]])
def test_what_is_not_finite_is_found(values):
    good = {"large": np.full(9, 3e38, np.float32), "steps": np.array(7), "none": np.zeros([0, 2], np.float32)}
    assert not_finite(good) is None
    assert not_finite({**good, "bad": np.array([1.0, *values], np.float32)}) == "bad"
