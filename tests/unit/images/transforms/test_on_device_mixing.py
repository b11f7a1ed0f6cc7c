"""Mixup and cutmix: correct shares, labels that sum to 1, distributions, and timm's results for the same draws."""

import math
from dataclasses import astuple

import numpy as np
import paddle
import pytest
from support.networks.timm_peer import kolmogorov_distance, timm_module

from paddlevit_dist.core.settings import default_config
from paddlevit_dist.images.classification.augmentation import build_mixing
from paddlevit_dist.images.transforms.on_device import BatchMixing, smooth_targets, soft_cross_entropy

SHAPE = (6, 3, 20, 28)
MODES = ["batch", "pair", "elem"]


def rng(seed=0):
    return np.random.default_rng(seed)


def owners(mix, shape=SHAPE):
    """(batch, height, width): how much of each pixel is the image's own, read off from mixed images."""
    images = np.zeros(shape, dtype=np.float32)
    images[: shape[0] // 2] = 1.0  # each partner is of the other half
    mixed = mix.images(paddle.to_tensor(images)).numpy()
    assert (mixed == mixed[:, :1]).all()
    return np.where(np.arange(shape[0]).reshape(-1, 1, 1) < shape[0] // 2, mixed[:, 0], 1.0 - mixed[:, 0])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "options",
    [
        {"mixup_alpha": 0.8},
        {"cutmix_alpha": 1.0},
        {"cutmix_minmax": (0.2, 0.8)},
        {"mixup_alpha": 0.8, "cutmix_alpha": 1.0},
        {"mixup_alpha": 0.2, "cutmix_alpha": 1.0, "probability": 0.5},
    ],
    ids=str,
)
def test_shares_are_those_of_the_pixels_and_labels_sum_to_one(mode, options):
    mixing = BatchMixing(mode=mode, **options)
    labels = paddle.to_tensor(np.arange(6))
    for seed in range(10):
        mix = mixing.draw(rng(seed), SHAPE)
        if mix is None:
            continue
        true_share = owners(mix).mean(axis=(1, 2), dtype=np.float64)
        targets = mix.targets(smooth_targets(labels, 6, 0.0)).numpy()
        own = targets[np.arange(6), np.arange(6)]
        np.testing.assert_allclose(own, true_share, atol=2e-6)
        np.testing.assert_allclose(targets[np.arange(6), np.arange(6)[::-1]], 1.0 - true_share, atol=2e-6)
        np.testing.assert_allclose(targets.sum(axis=1), 1.0, atol=1e-6)
        smoothed = mix.targets(smooth_targets(labels, 6, 0.1)).numpy()
        np.testing.assert_allclose(smoothed, 0.9 * targets + 0.1 / 6, atol=1e-6)
        dominant = mix.dominant(labels).numpy()
        clear = np.abs(own - 0.5) > 1e-6
        assert (dominant[clear] == targets.argmax(axis=1)[clear]).all()


def test_cutmix_exchanges_one_box_of_whole_pixels():
    images = rng(1).standard_normal(SHAPE).astype(np.float32)
    mix = BatchMixing(cutmix_alpha=1.0).draw(rng(3), SHAPE)
    top, left, bottom, right = mix.boxes[0]
    expected = images.copy()
    expected[:, :, top:bottom, left:right] = images[::-1, :, top:bottom, left:right]
    np.testing.assert_array_equal(mix.images(paddle.to_tensor(images)).numpy(), expected, strict=True)
    assert mix.share[0] == 1 - (bottom - top) * (right - left) / (20 * 28)


def test_mixup_is_a_weighted_mean():
    images = rng(1).standard_normal(SHAPE).astype(np.float32)
    mix = BatchMixing(mixup_alpha=0.8).draw(rng(3), SHAPE)
    expected = mix.share[0] * images + (1 - mix.share[0]) * images[::-1]
    np.testing.assert_allclose(mix.images(paddle.to_tensor(images)).numpy(), expected, atol=1e-6)


def test_modes_draw_once_per_batch_pair_or_image():
    def shares(mode, batch):
        return BatchMixing(mixup_alpha=0.8, mode=mode).draw(rng(4), (batch, 3, 8, 8)).share

    assert len(shares("batch", 6)) == 1
    pair = shares("pair", 6)
    assert len(pair) == 6 and len(set(pair)) == 3 and (pair == pair[::-1]).all()
    assert len(set(shares("elem", 6))) == 6
    odd = shares("pair", 7)
    assert len(odd) == 7 and odd[3] == 1.0 and (odd == odd[::-1]).all()


def test_shares_are_beta_distributed():
    uniform = BatchMixing(mixup_alpha=1.0, mode="elem").draw(rng(5), (4000, 3, 8, 8)).share
    assert kolmogorov_distance(uniform, lambda share: share) < 1.95
    arcsine = BatchMixing(mixup_alpha=0.5, mode="elem").draw(rng(5), (4000, 3, 8, 8)).share
    assert kolmogorov_distance(arcsine, lambda share: 2 / math.pi * np.arcsin(np.sqrt(share))) < 1.95
    narrow = BatchMixing(mixup_alpha=8.0, mode="elem").draw(rng(5), (4000, 3, 8, 8)).share
    assert abs(narrow.mean() - 0.5) < 4 * math.sqrt(1 / 68 / 4000)  # variance of Beta(a, a): 1 / (4 (2 a + 1))
    assert abs(narrow.var() - 1 / 68) < 0.1 / 68


def test_cutmix_boxes_have_the_area_of_their_share_and_uniform_centers():
    shape = (5000, 3, 1000, 800)
    mix = BatchMixing(cutmix_alpha=1.0, mode="elem").draw(rng(6), shape)
    top, left, bottom, right = mix.boxes.T
    inside = (top > 0) & (left > 0) & (bottom < 1000) & (right < 800)
    aspect = (bottom - top)[inside] / np.maximum((right - left)[inside], 1)
    np.testing.assert_allclose(aspect[(right - left)[inside] > 100], 1000 / 800, rtol=0.02)
    # A square cut of area a has its center anywhere: the mean share after cutting off at the border is
    # 1 - E[(s (1 - s / 4))^2] with s = sqrt(a), a uniform: 1 - (1/2 - 1/5 + 1/48).
    expected = 1 - (1 / 2 - 1 / 5 + 1 / 48)
    assert abs(mix.share.mean() - expected) < 4 * mix.share.std() / math.sqrt(5000)


def test_minmax_boxes_lie_inside_with_sides_in_their_range():
    mix = BatchMixing(cutmix_minmax=(0.2, 0.6), mode="elem").draw(rng(7), (4000, 3, 100, 200))
    top, left, bottom, right = mix.boxes.T
    height, width = bottom - top, right - left
    assert height.min() == 20 and height.max() == 59 and width.min() == 40 and width.max() == 119
    assert (top >= 0).all() and (bottom <= 100).all() and bottom.max() == 100 and right.max() == 200
    same = BatchMixing(cutmix_minmax=(0.5, 0.5)).draw(rng(7), (4, 3, 100, 200))
    assert same.share.tolist() == [0.75]


def test_switching_and_mixing_happen_as_often_as_asked():
    mixing = BatchMixing(0.8, 1.0, probability=0.6, switch_probability=0.3, mode="elem")
    mix = mixing.draw(rng(8), (6000, 3, 32, 32))
    mixed = mix.share < 1
    is_cutmix = mix.boxes.any(axis=1)
    assert abs(mixed.mean() - 0.6) < 0.03  # a few cutmix boxes have no pixel, a few mixup shares round to 1
    assert abs(is_cutmix[mixed].mean() - 0.3) < 4 * math.sqrt(0.21 / 3600) + 0.01
    none = sum(BatchMixing(0.8, probability=0.25).draw(rng(seed), SHAPE) is None for seed in range(1000))
    assert abs(none / 1000 - 0.75) < 4 * math.sqrt(0.1875 / 1000)
    assert BatchMixing(0.8, probability=0.0).draw(rng(), SHAPE) is None


@pytest.mark.parametrize("mode", MODES)
def test_two_draws_of_one_generator_are_equal_and_of_another_are_not(mode):
    mixing = BatchMixing(0.8, 1.0, mode=mode)
    first, again, other = (mixing.draw(rng([0, 7, seed, 0]), SHAPE) for seed in (0, 0, 1))
    for left, right in zip(astuple(first), astuple(again)):
        np.testing.assert_array_equal(left, right, strict=True)
    assert (first.share != other.share).any()


@pytest.mark.parametrize("batch", [1, 2, 3])
@pytest.mark.parametrize("mode", MODES)
def test_small_and_odd_batches_are_mixed_too(batch, mode):
    images = rng(1).standard_normal((batch, 3, 8, 8)).astype(np.float32)
    for seed in range(10):
        mix = BatchMixing(0.8, 1.0, mode=mode).draw(rng(seed), images.shape)
        if mix is not None:
            mixed = mix.images(paddle.to_tensor(images)).numpy()
            if batch % 2:  # the middle one is mixed with itself
                np.testing.assert_allclose(mixed[batch // 2], images[batch // 2], atol=1e-6)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", ["mixup", "cutmix"])
def test_timm_mixes_images_and_labels_the_same_for_the_same_draws(smoothing, mode, kind, monkeypatch):
    torch = pytest.importorskip("torch")
    timm = timm_module("mixup")
    alphas = (0.8, 0.0) if kind == "mixup" else (0.0, 1.0)
    images = rng(1).standard_normal(SHAPE).astype(np.float32)
    labels = np.array([3, 1, 4, 1, 5, 2])
    is_cutmix, drawn = kind == "cutmix", {}

    def box_and_share(shape, lam, **_):
        top, left, bottom, right = next(drawn["boxes"])
        return (top, bottom, left, right), 1 - (bottom - top) * (right - left) / (shape[-1] * shape[-2])

    monkeypatch.setattr(timm.Mixup, "_params_per_batch", lambda self: (drawn["shares"][0], is_cutmix))
    monkeypatch.setattr(timm.Mixup, "_params_per_elem", lambda self, n: (drawn["shares"].copy(), np.full(n, is_cutmix)))
    monkeypatch.setattr(timm, "cutmix_bbox_and_lam", box_and_share)
    for seed in range(10):
        mix = BatchMixing(*alphas, mode=mode).draw(rng(seed), SHAPE)
        rows = {"batch": 1, "pair": 3, "elem": 6}[mode]
        drawn.update(shares=mix.share[:rows], boxes=iter(mix.boxes[:rows]))
        mixer = timm.Mixup(*alphas, mode=mode, label_smoothing=smoothing, num_classes=7)
        their_images, their_targets = mixer(torch.tensor(images.copy()), torch.tensor(labels))
        ours = mix.images(paddle.to_tensor(images)).numpy()
        targets = mix.targets(smooth_targets(paddle.to_tensor(labels), 7, smoothing)).numpy()
        np.testing.assert_allclose(ours, their_images.numpy(), atol=1e-6)
        np.testing.assert_allclose(targets, their_targets.numpy(), atol=1e-6)


def test_soft_cross_entropy_of_sharp_labels_is_the_cross_entropy():
    logits = rng(1).standard_normal((5, 7)).astype(np.float32)
    labels = np.array([0, 6, 3, 3, 1])
    log_softmax = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    for smoothing in (0.0, 0.1):
        expected = -((1 - smoothing) * log_softmax[np.arange(5), labels] + smoothing * log_softmax.mean(axis=1)).sum()
        targets = smooth_targets(paddle.to_tensor(labels), 7, smoothing)
        assert soft_cross_entropy(paddle.to_tensor(logits), targets).item() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(
    "keys, expected",
    [
        ({}, None),
        ({"MIXUP_ALPHA": 0.8, "MIXUP_PROB": 0.0}, None),
        ({"MIXUP_ALPHA": 0.8}, BatchMixing(0.8)),
        ({"CUTMIX_ALPHA": 1.0, "MIXUP_MODE": "pair"}, BatchMixing(0.0, 1.0, mode="pair")),
        ({"CUTMIX_MINMAX": [0.2, 0.8], "MIXUP_PROB": 0.5}, BatchMixing(0.0, 0.0, (0.2, 0.8), 0.5)),
        ({"MIXUP_ALPHA": 0.8, "CUTMIX_ALPHA": 1.0, "MIXUP_SWITCH_PROB": 0.3}, BatchMixing(0.8, 1.0, None, 1.0, 0.3)),
    ],
    ids=str,
)
def test_keys_switch_mixing_on(keys, expected):
    train = default_config().TRAIN
    for name, value in keys.items():
        train[name] = value
    assert build_mixing(train) == expected
