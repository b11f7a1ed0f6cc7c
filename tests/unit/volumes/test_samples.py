"""Training crops: where landmarks go, and what the voxels are."""

import math

import numpy as np
import pytest

from paddlevit_dist import UserError
from paddlevit_dist.volumes import samples as samples_module
from paddlevit_dist.volumes.dataset import VolumeDataset
from paddlevit_dist.volumes.geometry import VolumeGeometry, rotation
from paddlevit_dist.volumes.intensities import IntensityConfig
from paddlevit_dist.volumes.landmarks.mirroring import mirror_order
from paddlevit_dist.volumes.samples import AugmentationConfig, CropMap, VolumeSamples, apply_gamma, blur, coarsen, cut
from paddlevit_dist.volumes.store import DecodedVolume

SPACING = np.array([3.0, 2.0, 1.5])
NAMES = ["left_eye", "nose", "right_eye"]
POINTS = np.array([[12.0, 14.0, 8.0], [10.0, 20.0, 16.0], [12.0, 14.0, 25.0]])


class OneVolume(VolumeDataset):
    """A smooth blob at each landmark, 1, 2 and 3 times as bright, so that its place can be found again."""

    names = NAMES
    spacing = SPACING

    def __init__(self, shape=(24, 32, 34), points=POINTS) -> None:
        grid = np.stack(np.meshgrid(*(np.arange(n) for n in shape), indexing="ij"), axis=-1)
        self._points = points
        self.array = np.zeros(shape, dtype=np.float32)
        for number, point in enumerate(points, start=1):
            if np.isfinite(point).all():
                distance = np.linalg.norm((grid - point) * SPACING, axis=-1)
                self.array += (number * np.exp(-((distance / 5.0) ** 2))).astype(np.float32)

    def __len__(self) -> int:
        return 1

    def read(self, index: int) -> tuple[DecodedVolume, np.ndarray]:
        geometry = VolumeGeometry(self.array.shape, np.diag([*SPACING[::-1], 1.0]))
        return DecodedVolume(self.array, geometry, (0.0, 1.0)), self._points.copy()


def samples(crop_size, dataset=None, window=None, **augmentation) -> VolumeSamples:
    mirrored = mirror_order(NAMES, ["left_eye:right_eye"])
    return VolumeSamples(dataset or OneVolume(), crop_size, AugmentationConfig(**augmentation), mirrored, window)


def drawn(reader: VolumeSamples, count: int = 40):
    return [reader.sample(0, np.random.default_rng(seed)) for seed in range(count)]


def inside(point, size, margin=3.0) -> bool:
    return bool(((point >= margin) & (point <= np.array(size) - 1 - margin)).all())


@pytest.mark.parametrize(
    "augmentation, tolerance",
    [({}, 0.02), ({"flip": 0.5}, 0.02), ({"flip": 0.5, "rotation_degrees": 25.0, "scale": 0.2}, 0.15)],
)
def test_blobs_and_landmarks_go_to_the_same_place(augmentation, tolerance):
    size = (20, 24, 26)
    offsets = np.stack(np.meshgrid(*(np.arange(-2, 3),) * 3, indexing="ij"), axis=-1)
    seen = 0
    for sample in drawn(samples(size, **augmentation)):
        assert sample["volume"].shape == (1, *size) and sample["volume"].dtype == np.float32
        for number, point in enumerate(sample["points"].astype(float)):
            if not inside(point, size):
                continue
            seen += 1
            # The peak of the Gaussian blob, by a quadratic fit to the logarithms around it.
            middle = np.rint(point).astype(int)
            block = sample["volume"][0][tuple(slice(i - 2, i + 3) for i in middle)].astype(float)
            terms = offsets.reshape(-1, 3)
            pairs = [terms[:, i] * terms[:, j] for i in range(3) for j in range(i, 3)]
            fit = np.linalg.lstsq(np.stack([np.ones(125), *terms.T, *pairs], 1), np.log(block.reshape(-1)), rcond=None)[
                0
            ]
            xx, xy, xz, yy, yz, zz = fit[4:]
            peak = -np.linalg.solve([[2 * xx, xy, xz], [xy, 2 * yy, yz], [xz, yz, 2 * zz]], fit[1:4])
            np.testing.assert_allclose(middle + peak, point, atol=tolerance)
            # In a mirrored crop the eyes' names are exchanged, their brightness is not.
            assert round(float(np.exp(fit[0]) * (1 + tolerance / 2))) in (number + 1, 3 - number)
    assert seen > 40


def test_a_flip_exchanges_left_and_right_and_their_names():
    size = (24, 32, 34)
    plain, flipped = (samples(size, flip=p).sample(0, np.random.default_rng(1)) for p in (0.0, 1.0))
    np.testing.assert_array_equal(flipped["volume"], plain["volume"][..., ::-1], strict=True)
    expected = plain["points"][[2, 1, 0]]
    expected[:, 2] = size[2] - 1 - expected[:, 2]
    np.testing.assert_allclose(flipped["points"], expected, atol=1e-4)


def test_crops_differ_and_a_generator_decides_them():
    reader = samples((10, 12, 12), rotation_degrees=10.0, intensity_jitter=0.2, noise=0.1)
    first, again, other = (reader.sample(0, np.random.default_rng(seed)) for seed in (3, 3, 4))
    assert np.array_equal(first["volume"], again["volume"]) and np.array_equal(first["points"], again["points"])
    assert not np.array_equal(first["volume"], other["volume"])


def test_a_volume_smaller_than_the_crop_is_surrounded_by_the_darkest_intensity():
    reader = samples((30, 40, 40), window=(-2.0, 2.0))
    sample = reader.sample(0, np.random.default_rng(0))
    volume = sample["volume"][0]
    assert (volume[0] == 0.0).all() and volume.max() > 1.0
    assert volume.sum() - 0.5 * (24 * 32 * 34) == pytest.approx(OneVolume().array.sum() / 4, rel=1e-3)
    for number, point in enumerate(sample["points"]):
        assert volume[tuple(np.rint(point).astype(int))] == pytest.approx((number + 1 + 2) / 4, abs=0.05)


def test_missing_landmarks_stay_missing():
    points = POINTS.copy()
    points[1] = np.nan
    for sample in drawn(samples((15, 18, 20), OneVolume(points=points), flip=0.5, rotation_degrees=5.0), 5):
        assert np.isnan(sample["points"]).all(axis=1).tolist() == [False, True, False]


def test_half_of_the_crops_are_drawn_near_a_landmark():
    far = np.array([[2.0, 2.0, 2.0]] * 3)
    reader = samples((8, 8, 8), OneVolume(points=far))
    near = sum(inside(s["points"][0], (8, 8, 8), margin=0.0) for s in drawn(reader, 100))
    assert 45 <= near <= 80


def test_a_whole_volume_comes_with_its_place():
    sample = samples(None).sample(0, np.random.default_rng(0))
    np.testing.assert_array_equal(sample["volume"][0], OneVolume().array, strict=True)
    np.testing.assert_array_equal(sample["points"], POINTS.astype(np.float32), strict=True)
    assert sample["affine"].tolist() == np.diag([1.5, 2.0, 3.0, 1.0]).tolist() and sample["index"] == 0


def test_interpolation_equals_a_loop_also_beyond_the_border():
    generator = np.random.default_rng(0)
    array = generator.standard_normal((6, 7, 8)).astype(np.float32)
    crop = CropMap(np.array([2.0, 4.5, 6.0]), rotation(np.array([0.3, -0.2, 0.5])) * 1.3, (5, 6, 7), False)
    result = cut(array, crop, outside=-9.0)
    assert result.dtype == np.float32
    for voxel in np.ndindex(*crop.size):
        place = crop.center + crop.matrix @ (np.array(voxel) - (np.array(crop.size) - 1) / 2)
        low = np.floor(place).astype(int)
        value = 0.0
        for corner in np.ndindex(2, 2, 2):
            at = low + corner
            weight = np.prod(np.where(corner, place - low, 1 - (place - low)))
            is_in = ((at >= 0) & (at < array.shape)).all()
            value += weight * (array[tuple(at)] if is_in else -9.0)
        assert result[voxel] == pytest.approx(value, abs=1e-4), voxel
    np.testing.assert_allclose(crop.to_crop(crop.center[None]), [[2.0, 2.5, 3.0]])


@pytest.mark.parametrize(
    "pair, message", [("nose", "not a pair"), ("nose:ear", "'ear' is not a landmark"), ("nose:nose", "not a pair")]
)
def test_bad_mirror_pairs_are_told(pair, message):
    with pytest.raises(UserError, match=message):
        mirror_order(NAMES, [pair])
    with pytest.raises(UserError, match="in two pairs"):
        mirror_order(NAMES, ["left_eye:right_eye", "nose:left_eye"])


def test_blur_gamma_and_resolution_as_loops_have_them():
    volume = np.random.default_rng(0).normal(2.0, 3.0, (5, 6, 7)).astype(np.float32)
    weights = [math.exp(-((step / 0.8) ** 2) / 2) for step in range(-3, 4)]
    expected = volume.astype(np.float64)
    for axis in range(3):
        before, expected = expected, np.zeros(volume.shape)
        for place in np.ndindex(volume.shape):
            for step, weight in zip(range(-3, 4), weights):
                at = list(place)
                at[axis] = min(max(at[axis] + step, 0), volume.shape[axis] - 1)
                expected[place] += weight / sum(weights) * before[tuple(at)]
    np.testing.assert_allclose(blur(volume, 0.8), expected, atol=1e-5)

    turned = apply_gamma(volume, 1.4, True)
    assert turned.mean() == pytest.approx(volume.mean(), abs=1e-4) and turned.std() == pytest.approx(
        volume.std(), rel=1e-4
    )
    share = (volume.max() - volume) / (volume.max() - volume.min())
    np.testing.assert_allclose(np.corrcoef(turned.ravel(), (share**1.4).ravel())[0, 1], -1, atol=1e-5)

    line = np.arange(9, dtype=np.float32) ** 2
    for share, kept in ((0.55, [0, 2, 4, 6, 8]), (0.45, [0, 3, 5, 8])):  # 5 and 4 of 9, the nearest to even steps
        coarse = coarsen(np.broadcast_to(line, (3, 4, 9)), share)
        np.testing.assert_allclose(coarse[1, 2], np.interp(np.arange(9), kept, line[kept]), rtol=1e-6)
    np.testing.assert_array_equal(coarsen(line.reshape(1, 9, 1), 1.0), line.reshape(1, 9, 1), strict=True)


def test_a_share_of_the_crops_is_blurred_coarsened_and_given_another_gamma(monkeypatch):
    """In this order, each with its own probability, by amounts that reach the ends of their ranges."""
    calls = {"blur": [], "coarsen": [], "apply_gamma": []}
    for number, (name, found) in enumerate(calls.items(), start=1):
        monkeypatch.setattr(
            samples_module, name, lambda x, *given, found=found, n=number: found.append(given) or x * 10 + n
        )
    config, digits = AugmentationConfig(blur=0.2, low_resolution=0.5, gamma=0.8), set()
    for seed in range(800):
        crop = samples_module.augment_intensities(np.zeros((1, 1, 1)), config, np.random.default_rng(seed))
        digits.add(int(crop[0, 0, 0]))
    assert crop.dtype == np.float32 and digits == {0, 1, 2, 3, 12, 13, 23, 123}
    shares = {name: len(found) / 800 for name, found in calls.items()}
    assert shares == pytest.approx({"blur": 0.2, "coarsen": 0.5, "apply_gamma": 0.8}, abs=0.04)
    for name in ("blur", "coarsen"):
        assert 0.5 <= min(calls[name])[0] < 0.51 and 0.99 < max(calls[name])[0] <= 1.0
    exponents, inverted = np.array(calls["apply_gamma"]).T
    assert 0.7 <= exponents.min() < 0.71 and 1.49 < exponents.max() <= 1.5
    assert np.mean(exponents < 1) == pytest.approx(0.5, abs=0.05) and inverted.mean() == pytest.approx(0.25, abs=0.05)
    assert np.median(exponents[exponents < 1]) == pytest.approx(0.85, abs=0.02)
    generators = [np.random.default_rng(0), np.random.default_rng(0)]
    samples_module.augment_intensities(np.zeros((1, 1, 1)), AugmentationConfig(), generators[0])
    generators[1].uniform(-1, 1, 2)
    assert generators[0].random() == generators[1].random()  # what is off draws nothing


def test_centers_of_crops_reach_from_border_to_border():
    """Of crops with an odd and an even side, and of one that is larger than the volume."""
    low, high = samples_module.center_range((9, 20, 6), np.array([4, 5, 10]))
    assert low.tolist() == [1.5, 2.0, 2.5] and high.tolist() == [6.5, 17.0, 2.5]
    reader = samples((4, 5, 6), OneVolume((9, 20, 34), np.full((3, 3), np.nan)))
    centers = np.array(
        [reader.draw_center((9, 20, 34), np.full((1, 3), np.nan), np.random.default_rng(seed)) for seed in range(400)]
    )
    np.testing.assert_allclose(centers.min(axis=0), [1.5, 2.0, 2.5], atol=0.3)
    np.testing.assert_allclose(centers.max(axis=0), [6.5, 17.0, 30.5], atol=0.3)


def test_even_volumes_and_crops_beside_a_volume():
    even = np.full((2, 2, 2), 3.0, np.float32)
    assert apply_gamma(even, 1.4, True) is even
    for center in ((1.0, 1.0, 40.0), (-9.0, 1.0, 1.0)):
        crop = CropMap(np.array(center), np.diag([1.0, 1.0, -1.0]), (3, 3, 3), False)
        np.testing.assert_array_equal(cut(np.ones((3, 3, 3), np.float32), crop, outside=-2.0), np.full((3, 3, 3), -2.0))


def test_what_a_dataset_need_not_write():
    dataset = OneVolume()
    assert samples(None).class_names == dataset.class_names == NAMES
    (channel,) = dataset.stored(0)
    assert channel is dataset.array
    np.testing.assert_allclose(dataset.world(0), POINTS[:, ::-1] * SPACING[::-1])


def test_landmarks_take_other_intensities():
    class Measured(OneVolume):
        def read(self, index):
            decoded, points = super().read(index)
            return decoded._replace(moments=(3.0, 2.0)), points

    whole = samples(None, Measured(), IntensityConfig(("z_score",))).sample(0, np.random.default_rng(0))["volume"]
    np.testing.assert_allclose(whole[0], (OneVolume().array - 3.0) / 2.0, rtol=1e-5)
