"""Policies, their notation, and the random augmentations: distributions, and timm's choices for the same strings."""

import hashlib
import json
import math
import pickle
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageEnhance, ImageOps
from support.networks.timm_peer import kolmogorov_distance, timm_module
from support.refusals import refusal_of
from yacs.config import CfgNode

from paddlevit_dist import UserError
from paddlevit_dist.core.settings import default_config
from paddlevit_dist.images.classification.augmentation import build_augmentation
from paddlevit_dist.images.transforms import policies as augment
from paddlevit_dist.images.transforms.policies import (
    AutoAugment,
    ColorJitter,
    MagnitudeSpread,
    RandAugment,
    TransformChain,
    get_fill,
    parse_auto_augment,
    parse_rand_augment,
)
from paddlevit_dist.images.transforms.policy_tables import AUTO_AUGMENT

TEXTS = [
    "rand-m9-mstd0.5-inc1",
    "rand-m9-n3-mstd0.5",
    "rand-n4-p0.8-m5",
    "rand-m12-mmax15-inc1",
    "rand-m9-mstd101",
    "rand-m7-mstd100-inc0",
    "rand-mstd1-tweights",
    "rand-t3a-m6-n1-p1.0",
    "rand-m6-t3aw-n3-inc1",
]


def rng(seed=0):
    return np.random.default_rng(seed)


def noise(width=36, height=28, mode="RGB", seed=0):
    shape = (height, width, 3) if mode == "RGB" else (height, width)
    return Image.fromarray(rng(seed).integers(0, 256, shape, dtype=np.uint8))


def train_section(**keys) -> CfgNode:
    train = default_config().TRAIN
    for name, value in keys.items():
        assert name in train
        train[name] = value
    return train


def test_the_text_of_a_policy_says_everything():
    found = parse_rand_augment("rand-m9-mstd0.5-inc1", (1, 2, 3))
    assert (found.layers, found.magnitude, found.spread, found.probability) == (2, 9, MagnitudeSpread(0.5, 10), 0.5)
    assert found.weights is None and found.fill == (1, 2, 3) and len(found.names) == 15
    assert "PosterizeIncreasing" in found.names and "Posterize" not in found.names
    assert "Posterize" in parse_rand_augment("rand-m9").names
    assert parse_rand_augment("rand") == parse_rand_augment("rand-inc0-p0.5-n2-m10-mmax10")
    assert math.isinf(parse_rand_augment("rand-mstd101").spread.deviation)
    assert math.isinf(parse_rand_augment("rand-mstdinf").spread.deviation)
    assert parse_rand_augment("rand-mstd100").spread.deviation == 100


@pytest.mark.parametrize("text", TEXTS)
def test_texts_mean_what_they_mean_to_timm(text):
    theirs = timm_module("auto_augment").rand_augment_transform(text)
    ours = parse_rand_augment(text)
    first = theirs.ops[0]
    assert list(ours.names) == [operation.name for operation in theirs.ops]
    assert (ours.layers, ours.magnitude, ours.probability) == (theirs.num_layers, first.magnitude, first.prob)
    assert ours.spread == MagnitudeSpread(first.magnitude_std, first.magnitude_max or 10)
    if ours.weights is None:
        assert theirs.choice_weights is None
    else:
        np.testing.assert_allclose(ours.weights, theirs.choice_weights)


@pytest.mark.parametrize("name", AUTO_AUGMENT)
def test_policies_have_the_digest_of_timms(name):
    digests = json.loads(Path(__file__).with_name("timm_parameters.json").read_text())["policies"]
    assert hashlib.sha256(json.dumps(AUTO_AUGMENT[name]).encode()).hexdigest() == digests[name]


def test_the_policy_of_the_paper_has_25_rows_of_two():
    for name in ("original", "originalr", "v0", "v0r"):
        assert len(AUTO_AUGMENT[name]) == 25 and {len(row) for row in AUTO_AUGMENT[name]} == {2}
    assert AUTO_AUGMENT["original"][0] == (("PosterizeOriginal", 0.4, 8), ("Rotate", 0.6, 9))
    assert AUTO_AUGMENT["original"][24] == (("Equalize", 0.8, 8), ("Equalize", 0.6, 3))


@pytest.mark.parametrize(
    "text, problem",
    [
        ("randm9", "it begins with 'randm9'"),
        ("rand-m9-w0", "'w0' is not one of m, n, p, mstd, mmax, inc with a number"),
        ("rand-mx", "'mx' is not one of"),
        ("rand-minf", "'minf' is not one of"),
        ("rand-m9-tbest", "its set of operations 'best' is not one of 3a, 3aw, weights"),
        ("rand-n0", "n is a whole number from 1"),
        ("rand-n1.5", "n is a whole number from 1"),
        ("rand-inc2", "inc is 0 or 1"),
        ("rand-p2", "p is at most 1"),
        ("rand-n16-tweights", "its set has only 15 operations"),
    ],
)
def test_other_texts_are_the_users_to_mend(text, problem):
    message = refusal_of(parse_rand_augment, text)
    assert message.startswith(f"TRAIN.RAND_AUGMENT is '{text}': ") and problem in message
    assert message.endswith("expected text like rand-m9-mstd0.5-inc1, true or false")


@pytest.mark.parametrize(
    "text, problem", [("v1", "no policy 'v1'"), ("v0-m9", "'m9' is not one of mstd with a number")]
)
def test_other_policies_are_the_users_to_mend(text, problem):
    with pytest.raises(
        UserError, match=f"TRAIN.AUTO_AUGMENT is '{text}': .*{problem}.*original, originalr, v0, v0r, 3a"
    ):
        parse_auto_augment(text)


def test_magnitudes_are_drawn_as_stated():
    normal, uniform, fixed = MagnitudeSpread(0.5), MagnitudeSpread(math.inf), MagnitudeSpread()
    generator, count = rng(1), 4000
    inside = [normal.draw(5.0, generator) for _ in range(count)]
    gauss = np.vectorize(lambda m: 0.5 * (1 + math.erf((m - 5.0) / 0.5 / math.sqrt(2))))
    assert kolmogorov_distance(inside, gauss) < 1.95
    assert kolmogorov_distance([uniform.draw(9.0, generator) for _ in range(count)], lambda m: m / 9.0) < 1.95
    assert {fixed.draw(9.0, generator) for _ in range(9)} == {9.0}
    near_end = [normal.draw(9.5, generator) for _ in range(count)]
    assert max(near_end) == 10.0
    clipped = np.mean(np.array(near_end) == 10.0)  # one standard deviation above the mean
    assert abs(clipped - 0.1587) < 4 * math.sqrt(0.1587 * 0.8413 / count)
    assert MagnitudeSpread(0.5, 15.0).draw(14.0, generator) > 10.0
    assert min(MagnitudeSpread(0.5).draw(0.2, generator) for _ in range(50)) == 0.0


def test_rand_augment_chooses_evenly_and_may_repeat():
    policy, generator = parse_rand_augment("rand-m9"), rng(2)
    chosen = [tuple(policy.choose(generator)) for _ in range(6000)]
    counts = Counter(name for pair in chosen for name in pair)
    expected = 12000 / 15
    assert sum((counts[name] - expected) ** 2 / expected for name in policy.names) < 36.1  # chi2(14), p = 0.001
    repeats = np.mean([first == second for first, second in chosen])
    assert abs(repeats - 1 / 15) < 4 * math.sqrt(1 / 15 * 14 / 15 / 6000)


def test_weighted_choice_never_repeats_and_starts_by_its_weights():
    policy, generator = parse_rand_augment("rand-n3-t3aw"), rng(2)
    chosen = [tuple(policy.choose(generator)) for _ in range(3000)]
    assert all(len(set(names)) == 3 for names in chosen)
    first = Counter(names[0] for names in chosen)
    for name, weight in zip(policy.names, policy.weights):
        assert abs(first[name] / 3000 - weight) < 4 * math.sqrt(weight * (1 - weight) / 3000)
    certain = RandAugment(("Invert", "Color", "Solarize"), weights=(0.5, 0.0, 0.5))
    assert all(set(certain.choose(generator)) == {"Invert", "Solarize"} for _ in range(9))


def test_each_layer_happens_with_its_probability(monkeypatch):
    done = []
    monkeypatch.setattr(augment, "_apply", lambda name, image, *_: done.append(name) or image)
    policy, generator = RandAugment(("Invert",), layers=3, probability=0.3), rng(4)
    for _ in range(1000):
        policy(noise(), generator)
    assert abs(len(done) / 3000 - 0.3) < 4 * math.sqrt(0.3 * 0.7 / 3000)


def test_auto_augment_does_its_rows_equally_often_and_its_steps_by_their_probability(monkeypatch):
    done = Counter()
    monkeypatch.setattr(augment, "_apply", lambda name, image, *_: done.update([name]) or image)
    policy = AutoAugment(AUTO_AUGMENT["original"])
    image, generator, count = noise(4, 4), rng(5), 10000
    for _ in range(count):
        policy(image, generator)
    for name in ("Equalize", "Rotate", "Invert", "Sharpness", "ShearX"):
        rate = sum(step.probability for row in policy.policy for step in row if step.name == name) / 25
        assert abs(done[name] / count - rate) < 4 * math.sqrt(rate / count), name


@pytest.mark.parametrize(
    ("text", "name", "deviation"),
    [("v0r", "v0r", 0.0), ("original-mstd0.25", "original", 0.25), ("3a-mstd2", "3a", 2.0)],
)
def test_the_text_of_auto_augment_names_policy_and_deviation(text, name, deviation):
    assert parse_auto_augment(text, (1, 2, 3)) == AutoAugment(AUTO_AUGMENT[name], MagnitudeSpread(deviation), (1, 2, 3))
    assert parse_auto_augment(text).fill == 128


def test_a_row_of_auto_augment_does_its_steps_one_after_the_other_as_rand_augment_does_each():
    spread, fill, image = MagnitudeSpread(0.5), (7, 250, 100), noise()
    for seed, row in enumerate(AUTO_AUGMENT["v0"]):
        steps = tuple(step._replace(probability=1.0) for step in row)
        generator, expected = rng(seed), image
        for step in steps:
            expected = RandAugment((step.name,), 1, step.magnitude, spread, 1.0, None, fill)(expected, generator)
        found = AutoAugment((steps,), spread, fill)(image, rng(seed))
        np.testing.assert_array_equal(np.asarray(found), np.asarray(expected), err_msg=str(steps))


def test_three_augment_is_always_one_of_three():
    policy, image = parse_auto_augment("3a"), noise()
    gray = np.asarray(image.convert("L").convert("RGB"))
    solarized = np.asarray(ImageOps.solarize(image, 128))
    kinds = Counter()
    for seed in range(300):
        result = np.asarray(policy(image, rng(seed)))
        if (result == gray).all():
            kinds["gray"] += 1
        elif (result == solarized).all():
            kinds["solarized"] += 1
        else:
            kinds["blurred"] += 1
            assert result.std() < np.asarray(image).std()
    assert set(kinds) == {"gray", "solarized", "blurred"} and min(kinds.values()) > 70


@pytest.mark.parametrize("text", TEXTS)
def test_the_same_parameters_give_timms_image(text, monkeypatch):
    """timm's images for the operations, magnitudes and signs that our generator drew."""
    timm, ours, image = timm_module("auto_augment"), parse_rand_augment(text, (124, 116, 104)), noise()
    drawn = []
    for name, operation in augment.OPERATIONS.items():

        def recording(strength, generator, name=name, draw=operation.parameter):
            drawn.append((name, draw(strength, generator)))
            return drawn[-1][1]

        monkeypatch.setitem(augment.OPERATIONS, name, operation._replace(parameter=recording))
    for seed in range(25):
        drawn.clear()
        result = ours(image, rng(seed))
        expected = image
        for name, parameter in drawn:
            if "Posterize" in name and parameter <= 0:  # refused by Pillow below timm: no bits are left
                expected = Image.new("RGB", expected.size)
                continue
            arguments = () if parameter is None else (1 - parameter if name == "Desaturate" else parameter,)
            options = {"fillcolor": (124, 116, 104), "resample": Image.Resampling.BICUBIC}
            expected = timm.NAME_TO_OP[name](expected, *arguments, **options)
        np.testing.assert_array_equal(np.asarray(result), np.asarray(expected), strict=True)


def test_jitter_factors_are_uniform_and_independent(monkeypatch):
    factors = []

    def recording(enhancer, factor):
        factors.append(factor)
        return enhancer.image

    for kind in (ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color):
        monkeypatch.setattr(kind, "enhance", recording)
    image, generator = noise(4, 4), rng(6)
    for _ in range(2000):
        ColorJitter(0.4)(image, generator)
    assert len(factors) == 3 * 2000 and kolmogorov_distance(factors, lambda f: (f - 0.6) / 0.8) < 1.95
    rows = np.array(factors).reshape(-1, 3)
    assert np.abs(np.corrcoef(rows.T)[np.triu_indices(3, 1)]).max() < 4 / math.sqrt(2000)


def test_jitter_order_varies_and_strength_has_no_negative_factors(monkeypatch):
    image = noise()
    results = {np.asarray(ColorJitter(1e-12)(image, rng(seed))).tobytes() for seed in range(9)}
    assert len(results) == 1  # nothing to jitter: every order is the identity
    dark = np.asarray(ColorJitter(3.0)(image, rng(2)))
    assert dark.dtype == np.uint8
    changed = []
    monkeypatch.setattr(augment, "change", lambda name, image, factor: changed.append((name, factor)) or image)
    for seed in range(60):
        ColorJitter(0.5)(image, rng(seed))
    orders = Counter(tuple(name for name, _ in changed[first : first + 3]) for first in range(0, 180, 3))
    assert len(orders) == 6 and max(orders.values()) < 25
    assert all(set(order) == {"Brightness", "Contrast", "Color"} for order in orders)


def test_keys_are_built_in_paddlevits_precedence():
    mean = [0.485, 0.456, 0.406]
    fill = (124, 116, 104)
    assert build_augmentation(train_section(), mean) is None
    text = parse_rand_augment("rand-m9-n2-mstd0.5-inc1", fill)
    assert build_augmentation(train_section(RAND_AUGMENT=True), mean) == text
    both = train_section(RAND_AUGMENT=True, AUTO_AUGMENT=True, COLOR_JITTER=0.4, RAND_AUGMENT_LAYERS=3)
    assert build_augmentation(both, mean) == parse_rand_augment("rand-m9-n3-mstd0.5-inc1", fill)
    found = build_augmentation(train_section(AUTO_AUGMENT=True, COLOR_JITTER=0.4), mean)
    assert found == parse_auto_augment("original", fill)
    assert build_augmentation(train_section(COLOR_JITTER=0.4), mean) == ColorJitter(0.4)
    three = build_augmentation(train_section(AUTO_AUGMENT="3a", COLOR_JITTER=0.3), mean)
    assert three == TransformChain((parse_auto_augment("3a", fill), ColorJitter(0.3)))


def test_fill_is_the_mean_as_a_pixel():
    assert get_fill([0.5, 0.5, 0.5]) == (128, 128, 128)
    assert get_fill([0.485, 0.456, 0.406]) == (124, 116, 104)
    assert get_fill([1.0]) == 255


@pytest.mark.parametrize("text", [*TEXTS, "original", "v0r", "3a-mstd0.5"])
@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_any_policy_keeps_mode_and_size_and_depends_on_its_generator_alone(text, mode):
    parse = parse_rand_augment if text.startswith("rand") else parse_auto_augment
    policy = parse(text, (124, 116, 104) if mode == "RGB" else 116)
    image = noise(mode=mode)
    before = np.asarray(image).copy()
    for seed in range(40):
        result = policy(image, rng(seed))
        assert result.mode == mode and result.size == image.size
        again = pickle.loads(pickle.dumps(policy))(image, rng(seed))
        np.testing.assert_array_equal(np.asarray(result), np.asarray(again), strict=True)
    np.testing.assert_array_equal(np.asarray(image), before, strict=True)
    assert len(pickle.dumps(policy)) < 4000
