"""Segmentation of volumes: losses, evaluation on the stored grid, and a whole run."""

import contextlib
import math
import sys
from types import SimpleNamespace

import numpy as np
import paddle
import paddle.nn.functional as F
import pytest
from support.files.volume_files import write_volume
from support.processes import ROOT
from support.refusals import refusal_of
from support.registrations import forgotten

from paddlevit_dist import UserError, register_dataset
from paddlevit_dist.core.settings import load
from paddlevit_dist.core.tasks.aspects import get_aspect
from paddlevit_dist.core.tasks.prediction import CheckpointMeta
from paddlevit_dist.core.tasks.protocols import Checkable, Predictable, Reportable, describe_samples
from paddlevit_dist.core.tasks.sample_checks import BadSample
from paddlevit_dist.core.tasks.score_kind import find_score_kind
from paddlevit_dist.core.tasks.step_types import EvaluationStep, StepPosition
from paddlevit_dist.core.tasks.task_factory import build_metrics
from paddlevit_dist.volumes.geometry import VolumeGeometry
from paddlevit_dist.volumes.inputs import find_volumes
from paddlevit_dist.volumes.intensities import IntensityConfig
from paddlevit_dist.volumes.nonzero import VOLUME
from paddlevit_dist.volumes.samples import CropMap, cut_labels
from paddlevit_dist.volumes.segmentation.dataset import IGNORED, LabelMap, SegmentedVolumes
from paddlevit_dist.volumes.segmentation.decoding import resample_maps
from paddlevit_dist.volumes.segmentation.phantoms import SyntheticOrgans
from paddlevit_dist.volumes.segmentation.prediction import LabelWriter, NewVolumes
from paddlevit_dist.volumes.segmentation.regions import LabelRegion
from paddlevit_dist.volumes.segmentation.samples import (
    HOST,
    SegmentedSamples,
    SegmentedVolume,
    VolumeRecord,
    collate,
    split_batch,
)
from paddlevit_dist.volumes.segmentation.task import VolumeSegmentation
from paddlevit_dist.volumes.sliding_window import line_weights, mirror_model
from paddlevit_dist.volumes.store import DecodedVolume
from paddlevit_dist.volumes.unet3d import UNet3D

PHANTOMS = "configs/volume_unet3d_phantoms.yaml"


def test_gaussian_weights_are_nnunets_bell():
    line = line_weights(16, "gaussian")
    assert line[0] == pytest.approx(math.exp(-((7.5 / 2) ** 2) / 2)) and line.argmax() in (7, 8) and (line > 0).all()


def test_mirror_images_are_turned_back_before_the_mean():
    generator = np.random.default_rng(0)
    weights = paddle.to_tensor(generator.standard_normal((1, 1, 4, 5, 6)).astype("float32"))
    windows = generator.standard_normal((2, 1, 4, 5, 6)).astype("float32")
    found = mirror_model(lambda x: x * weights, [0, 2])(paddle.to_tensor(windows)).numpy()
    own = weights.numpy()
    expected = windows * (own + own[:, :, ::-1] + own[..., ::-1] + own[:, :, ::-1, :, ::-1]) / 4
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_maps_come_to_the_stored_grid_as_numpy_interpolates():
    maps = np.random.default_rng(0).standard_normal((2, 4, 5, 3)).astype("float32")
    found = resample_maps(paddle.to_tensor(maps), (7, 5, 2), np.array([0.5, 1.0, 2.0])).numpy()
    for label in range(2):
        for row in range(5):
            for column, place in enumerate((0, 2)):
                expected = np.interp(np.arange(7) / 2, np.arange(4), maps[label, :, row, place])
                np.testing.assert_allclose(found[label, :, row, column], expected, rtol=1e-5, atol=1e-6)


def test_classes_are_found_plane_by_plane_as_of_all_maps(monkeypatch):
    """Of 6 x 7 x 8 voxels that are stored with more planes and fewer columns, by interpolating each class's map."""
    task = VolumeSegmentation(load([f"-cfg={PHANTOMS}", "VOLUMES.CROP_SIZE", "[6, 7, 8]"]).values)
    task.class_names = ["background", "a", "b"]
    maps = np.random.default_rng(0).standard_normal((1, 3, 6, 7, 8)).astype("float32")
    maps[0, 1, 5, 6, 7] = np.nan
    place = VolumeRecord(0, (11, 7, 4), ((0.0, 0.0, 1.0), (0.0, 2.0, 0.0), (6.0, 0.0, 0.0)), (2.0, 2.0, 3.0))
    monkeypatch.setattr("paddlevit_dist.volumes.segmentation.decoding._VALUES_AT_ONCE", 3 * 7 * 4 * 2)
    found = task.class_map(lambda windows: paddle.to_tensor(maps), paddle.zeros([1, 6, 7, 8]), place).numpy()
    columns = maps[0, ..., ::2].transpose(0, 2, 3, 1).reshape(-1, 6)
    lines = np.stack([np.interp(np.arange(11) / 2, np.arange(6), line) for line in columns])
    expected = lines.reshape(3, 7, 4, 11).transpose(0, 3, 1, 2).argmax(axis=0)
    expected[8:, 6, 3] = IGNORED  # between a voxel and one that is not finite
    np.testing.assert_array_equal(found, expected)


def test_labels_of_a_turned_crop_are_those_of_the_nearest_voxels():
    array = np.random.default_rng(1).integers(0, 5, (9, 10, 11)).astype(np.uint8)
    turn = np.array([[0.9, 0.3, 0.0], [-0.3, 1.1, 0.2], [0.1, -0.2, -0.8]])
    for center, matrix in (([4.03, 5.07, 9.11], turn), ([4.0, 5.0, 9.0], np.diag([1.0, -1.0, 1.0]))):
        center = np.array(center)
        crop = CropMap(center, matrix, (5, 7, 5), False)
        found = cut_labels(array, crop)
        for place in np.ndindex(crop.size):
            at = np.rint(crop.center + matrix @ (np.array(place) - (np.array(crop.size) - 1) / 2)).astype(int)
            inside = ((at >= 0) & (at < array.shape)).all()
            assert found[place] == (array[tuple(at)] if inside else 0)


@pytest.mark.parametrize(
    "kind, expected",
    [("none", [-5, 0, 8]), ("percentiles", [-6 / 4, -1 / 4, 7 / 4]), ("min_max", [0, 5 / 13, 1])],
)
def test_intensities_become_what_the_key_says(kind, expected):
    decoded = DecodedVolume(np.array([-5, 0, 8], np.int16), None, (1.0, 5.0), (2.0, 4.0), (-5.0, 8.0))
    np.testing.assert_allclose(IntensityConfig((kind,)).scaling(0, decoded)(decoded.array), expected)
    both = IntensityConfig(("ct", "z_score"), (-4, 4), (1.0, 2.0))
    np.testing.assert_allclose(both.scaling(0, decoded)(decoded.array), [-2.5, -0.5, 1.5])
    np.testing.assert_allclose(both.scaling(1, decoded)(decoded.array), [-7 / 4, -0.5, 1.5])
    same = DecodedVolume(np.full(3, 9, np.int16), None, (9.0, 10.0), (9.0, 1.0), (9.0, 9.0))
    np.testing.assert_allclose(IntensityConfig(("min_max",)).scaling(0, same)(same.array), [0, 0, 0])


def test_each_channel_has_its_own_window_or_all_have_one():
    decoded = DecodedVolume(np.array([-5, 0, 8], np.int16), None, (1.0, 5.0))
    words = ["VOLUMES.NORMALIZE", "[ct, z_score, percentiles]", "VOLUMES.INTENSITY_WINDOW"]

    def config(*more):
        return IntensityConfig.from_config(load([f"-cfg={PHANTOMS}", *words, *more]).values.VOLUMES, 3)

    own = config("[-4, 4, 0, 0, 0, 16]", "VOLUMES.INTENSITY_MEAN_STD", "[1, 2, 0, 0, 0, 0]")
    np.testing.assert_allclose(own.scaling(0, decoded)(decoded.array), [-2.5, -0.5, 1.5])
    np.testing.assert_allclose(own.scaling(2, decoded)(decoded.array), [-5 / 16, 0, 0.5])
    assert own.about()["intensity_window"] == [[-4, 4], [0, 0], [0, 16]] and own.find_shared(["CT", "PET", "R"]) == []
    shared = config("[-4, 4]")
    np.testing.assert_allclose(shared.scaling(2, decoded)(decoded.array), [-1 / 8, 0.5, 1.5])
    assert shared.about()["intensity_window"] == [-4, 4]
    assert "is for each of the channels CT, R" in shared.find_shared(["CT", "PET", "R"])[0]
    ct = [f"-cfg={PHANTOMS}", "VOLUMES.NORMALIZE", "[ct]", "VOLUMES.INTENSITY_WINDOW", "[0,1]"]
    for deviation in (0.5, 0.0):
        volumes = load([*ct, "VOLUMES.INTENSITY_MEAN_STD", f"[1,{deviation}]"]).values.VOLUMES
        with contextlib.nullcontext() if deviation else pytest.raises(UserError, match="deviation must be above 0$"):
            assert IntensityConfig.from_config(volumes, 1, [VOLUME]).mean_std == [1.0, 0.5]
    for window, said in (
        ("[1, 2, 3, 4]", "has 4 numbers for 3 channels: set two, or two for each"),
        ("[1, 2, 0, 0, 5, 5]", "expected two different numbers"),
    ):
        with pytest.raises(UserError, match=said):
            config(window)


def test_losses_are_weighted_means_of_levels(tmp_path):
    """Cross-entropy and Dice of two levels, as loops over logits."""
    config = load([f"-cfg={PHANTOMS}"]).values
    task = VolumeSegmentation(config)
    task.class_names = ["background", "a", "b"]
    generator = np.random.default_rng(0)
    sizes = ((4, 6, 5), (2, 3, 3))
    logits = [generator.standard_normal((2, 3, *size)).astype("float32") for size in sizes]
    labels = generator.integers(0, 3, (2, 4, 6, 5)).astype(np.uint8)
    labels[0, 0] = IGNORED
    labels[1][labels[1] == 2] = 1
    batch = {"volume": paddle.zeros([1]), "labels": paddle.to_tensor(labels)}
    terms = task.train_step(lambda volume: [paddle.to_tensor(own) for own in logits], batch, StepPosition(1, 0, 1))
    counts = task.loss_normalizers({"labels": labels})
    assert list(terms) == list(counts) == ["cross_entropy", "dice", "cross_entropy 1/2", "dice 1/2"]
    for level, own in enumerate(logits):
        part = labels[:, :: 2**level, :: 2**level, :: 2**level]
        shares = np.exp(own) / np.exp(own).sum(axis=1, keepdims=True)
        entropies, dice = [], []
        for row in range(2):
            known = part[row] != IGNORED
            for place in np.argwhere(known):
                entropies.append(-np.log(shares[(row, part[row][tuple(place)], *place)]))
            for label in (1, 2):
                is_true = part[row] == label
                if is_true.any():
                    of_class = shares[row, label]
                    overlap = of_class[is_true].sum()
                    dice.append(1 - 2 * overlap / (of_class[known].sum() + is_true.sum()))
        end, weight = " 1/2" if level else "", (1 / 3 if level else 2 / 3)
        for name, parts in (("cross_entropy", entropies), ("dice", dice)):
            term = terms[name + end]
            assert float(term.sum) == pytest.approx(sum(parts), rel=1e-4) and term.weight == pytest.approx(weight)
            assert float(term.count) == counts[name + end] == len(parts)
    single = task.train_step(lambda volume: paddle.to_tensor(logits[0]), batch, StepPosition(1, 0, 1))
    assert list(single) == ["cross_entropy", "dice"]  # of a network with one output
    for name, term in single.items():
        assert (float(term.sum), term.weight) == (float(terms[name].sum), 1.0)


class VoxelErrors(VolumeSegmentation):
    """The share that a network does not give to the class of each voxel."""

    def losses(self, outputs, batch):
        labels = paddle.where(batch["labels"] == IGNORED, paddle.zeros_like(batch["labels"]), batch["labels"])
        return 1 - paddle.take_along_axis(F.softmax(outputs, axis=1), labels.unsqueeze(1), axis=1)[:, 0]


class CropErrors(VoxelErrors):
    """The largest of them in each crop or volume."""

    def losses(self, outputs, batch):
        return super().losses(outputs, batch).max(axis=[1, 2, 3])


@pytest.mark.parametrize("owner", [VoxelErrors, CropErrors])
def test_a_users_losses_are_of_labeled_voxels_or_of_crops_and_evaluated_alike(owner, monkeypatch):
    monkeypatch.setattr("paddlevit_dist.volumes.segmentation.decoding._VALUES_AT_ONCE", 3 * 6 * 5)  # a plane
    task = owner(
        load([f"-cfg={PHANTOMS}", "VOLUMES.CROP_SIZE", "[4, 6, 5]", "VOLUMES.SURFACE_DISTANCES", "false"]).values
    )
    task.class_names = ["background", "a", "b"]
    generator = np.random.default_rng(0)
    logits = [generator.standard_normal((2, 3, *size)).astype("float32") for size in ((4, 6, 5), (2, 3, 3))]
    labels = generator.integers(0, 3, (2, 4, 6, 5)).astype(np.uint8)
    labels[0, 0] = IGNORED

    def compute(own, part):
        shares = np.exp(own) / np.exp(own).sum(axis=1, keepdims=True)
        known = part != IGNORED
        errors = 1 - np.take_along_axis(shares, np.where(known, part, 0).astype(int)[:, None], axis=1)[:, 0]
        if owner is VoxelErrors:
            return errors[known].sum(), known.sum()
        return errors.max(axis=(1, 2, 3)).sum(), len(errors)

    batch = {"volume": paddle.zeros([1]), "labels": paddle.to_tensor(labels)}
    terms = task.train_step(lambda volume: [paddle.to_tensor(own) for own in logits], batch, StepPosition(1, 0, 1))
    assert list(terms) == list(task.loss_normalizers({"labels": labels})) == ["loss", "loss 1/2"]
    for level, (name, weight) in enumerate((("loss", 2 / 3), ("loss 1/2", 1 / 3))):
        total, count = compute(logits[level], labels[:, :: 2**level, :: 2**level, :: 2**level])
        term = terms[name]
        assert (float(term.sum), int(term.count), term.weight) == pytest.approx((total, count, weight), rel=1e-4)
    metrics, records = build_metrics(task), []
    spacing = ((0.0, 0.0, 1.0), (0.0, 1.0, 0.0), (1.0, 0.0, 0.0))
    for row in range(2):
        record = VolumeRecord(row, (4, 6, 5), spacing, (1.0, 1.0, 1.0))
        sample = {"volume": np.zeros((1, 4, 6, 5), np.float32), "labels": labels[row], HOST: record}
        records.append(sample)
    arrays = collate(records)
    tensors = {name: paddle.to_tensor(one) if isinstance(one, np.ndarray) else one for name, one in arrays.items()}
    outputs = iter(logits[0])
    task.eval_step(lambda windows: paddle.to_tensor(next(outputs)[None]), tensors, EvaluationStep(metrics))
    total, count = compute(logits[0], labels)
    values = metrics.compute(metrics.state)
    assert values["loss"] == pytest.approx(total / count, rel=1e-4)
    assert f" loss {values['loss']:.4f}" in metrics.summary(values)


def test_levels_of_the_network_have_heads_in_training_only():
    paddle.seed(0)
    model = UNet3D(3, in_channels=2, width=2, depth=3, norm="instance", activation="leaky_relu", supervised=1)
    volume = paddle.rand([1, 2, 9, 8, 10])
    assert [own.shape[2:] for own in model(volume)] == [[9, 8, 10], [5, 4, 5]]
    names = sorted(name for group in model.layer_groups() for name in group)
    assert names == sorted(name for name, _ in model.named_parameters())
    model.eval()
    assert model(volume).shape == [1, 3, 9, 8, 10]


def test_a_volume_is_segmented_alike_in_any_batch():
    dataset = SyntheticOrgans(None, "val", None)
    samples = SegmentedSamples(dataset, IntensityConfig(("percentiles",)))
    found = [samples.sample(index, np.random.default_rng(0)) for index in range(2)]
    for place, volume, labels in split_batch(collate(found)):
        np.testing.assert_array_equal(volume, found[place.index]["volume"], strict=True)
        np.testing.assert_array_equal(labels, dataset.stored_labels(place.index).array, strict=True)


def test_a_volume_to_learn_from_needs_labels(monkeypatch):
    dataset = SyntheticOrgans(None, "val", None)
    channels, _ = dataset.read(0)
    monkeypatch.setattr(dataset, "read", lambda index: (channels, None))
    with pytest.raises(BadSample, match="labels are None, expected a LabelMap"):
        SegmentedSamples(dataset, IntensityConfig(("none",)), (8, 8, 8)).sample(0, np.random.default_rng(0))


def test_scores_of_phantoms_are_counted_and_computed_again_from_a_file():
    """Every voxel is taken for brain."""
    task = VolumeSegmentation(load([f"-cfg={ROOT}/{PHANTOMS}"]).values)
    dataset = SyntheticOrgans(None, "val", None)
    task.class_names, task.numbers = dataset.class_names, dataset.numbers
    samples = SegmentedSamples(dataset, IntensityConfig(("percentiles",)))
    metrics, records = task.build_metrics(), []
    for index in range(2):
        labels = dataset.stored_labels(index).array
        records.append((index, metrics.update(np.full_like(labels, 3), labels, dataset.spacing)))
    values = metrics.compute(metrics.state)
    share = np.mean([2 * own / (own + 40 * 48 * 48) for own in (record[2, 5] for _, record in records)])
    assert values["Dice brain"] == pytest.approx(share) and values["missed"] == 6
    assert values["missed brain"] == 0 and values["missed bone"] == 2
    assert "a class is only labeled or only predicted: soft tissue 2, bone 2, eyes 2" in metrics.summary(values)
    for nothing in ((samples, []), (object(), records)):
        assert get_aspect(task, Reportable).figures(*nothing, None) == []
    np.testing.assert_array_equal(SegmentedVolumes.stored(dataset, 1)[0], dataset.read(1)[0][0].array, strict=True)
    kept = metrics.to_sample_table(metrics.per_sample())
    kind = find_score_kind(kept.kind)
    assert kind.is_valid(kept.arrays, 2, 4)
    again = kind.recompute([kept.arrays], kept.classes)(np.ones((1, 2)))
    assert {name: own[0] for name, own in again.items() if np.isfinite(own[0])} == pytest.approx(
        {name: own for name, own in values.items() if not name.startswith("missed")}
    )


def make_task(*words):
    task = VolumeSegmentation(load([f"-cfg={ROOT}/{PHANTOMS}", *words]).values)
    task.class_names, task.numbers, task.channels = ["background", "a", "b"], [0, 4, 2], ["CT", "PET"]
    return task


def test_the_log_names_channels_and_classes_or_regions():
    task = make_task()
    assert describe_samples(task, range(1200)) == "1,200 volumes, channels CT, PET, classes background, a, b"
    task.channels, task.regions = ["CT"], [LabelRegion((1, 2), 1), LabelRegion((2,), 2)]
    task.class_names = ["organs", "liver"]
    assert describe_samples(task, range(3)) == "3 volumes, regions organs, liver"


@pytest.mark.parametrize("axes", [["width"], ["height", "depth"]])
def test_crops_are_mirrored_along_the_axes_that_are_named_and_no_other(tmp_path, axes):
    labels = np.random.default_rng(0).integers(0, 4, (3, 4, 5)).astype(np.uint8)
    geometry = VolumeGeometry(labels.shape, np.diag([3.0, 3.0, 4.0, 1.0]))  # the phantoms' spacing
    words = [
        "VOLUMES.MIRROR_AXES",
        f"[{','.join(axes)}]",
        "VOLUMES.CROP_SIZE",
        "[8,8,8]",
        "VOLUMES.INTENSITY_JITTER",
        "0",
    ]
    task = VolumeSegmentation(load([f"-cfg={ROOT}/{PHANTOMS}", *words, "VOLUMES.FOREGROUND_FRACTION", "0"]).values)
    samples = task.build_dataset("train", tmp_path)
    channel, crop = DecodedVolume(np.zeros(labels.shape, np.int16), geometry, (0.0, 1.0)), labels.shape
    read = SimpleNamespace(read=lambda index: ([channel], LabelMap.from_array(labels, geometry)))
    samples.dataset, samples.crop_size = read, crop
    seen = {samples.sample(0, np.random.default_rng(seed))["labels"].tobytes() for seed in range(60)}
    numbers = [("depth", "height", "width").index(axis) for axis in axes]
    subsets = [[], numbers, *([number] for number in numbers if len(numbers) > 1)]
    assert seen == {np.ascontiguousarray(np.flip(labels, subset)).tobytes() for subset in subsets}


def test_doctor_sees_the_classes_or_regions_of_a_sample():
    task = make_task()
    checks, sample = get_aspect(task, Checkable), {"labels": np.array([[2, IGNORED], [0, 2]], np.uint8)}
    assert checks.labels_in(sample).tolist() == [0, 2] and checks.labels_in(sample).dtype == np.int64
    assert checks.expected_losses() == {"cross_entropy": math.log(3)}
    task.regions = [LabelRegion((1,), 1), LabelRegion((1, 2), 1), LabelRegion((3,), 3), LabelRegion((2,), 2)]
    assert checks.labels_in(sample).tolist() == [1, 3] and checks.expected_losses() == {"cross_entropy": math.log(2)}


@pytest.mark.parametrize("is_kept", [True, False])
def test_a_volume_without_labels_counts_as_unlabeled(monkeypatch, is_kept):
    task, seen = make_task(), []
    found = [SegmentedVolume(n, np.full((1, 2, 2), n, np.uint8), np.zeros((1, 2, 2)), np.eye(3)) for n in range(2)]
    pairs = list(zip(found, [np.zeros((0,), np.uint8), np.ones((1, 2, 2), np.uint8)]))
    monkeypatch.setattr(task, "segment_batch", lambda model, batch, metrics: iter(pairs))

    class Seen:
        def update(self, *given):
            return given

        def add(self, predictions, truths):
            seen.append((predictions, [truth.tolist() for truth in truths]))

    records = task.eval_step(None, {}, EvaluationStep(Seen(), Seen() if is_kept else None, None, is_kept))
    ignored = np.full((1, 2, 2), IGNORED).tolist()
    if is_kept:
        assert seen[0][0] == found and seen[0][1] == [ignored, np.ones((1, 2, 2)).tolist()]
        assert [(given[0][0, 0, 0], given[1].tolist()[0], given[2].tolist()) for given in records()] == [
            (0, ignored[0], np.eye(3).tolist()), (1, [[1, 1], [1, 1]], np.eye(3).tolist()),
        ]  # fmt: skip
    else:
        assert records is None and seen == []


def test_a_folder_without_a_channel_of_a_volume_is_told_and_nothing_is_written_for_no_volume(tmp_path):
    files = [str(tmp_path / name) for name in ("case_0000.nii.gz", "other_0001.nii.gz")]
    task = make_task()
    inputs = NewVolumes(files, task)
    assert len(inputs) == 0 and [file for file, _ in inputs.unreadable] == files
    assert "no file case_0001" in inputs.unreadable[0][1] and "no file other_0000" in inputs.unreadable[1][1]
    writer = LabelWriter(tmp_path, inputs, task.class_names, task.numbers, [])
    assert writer.finish(iter([])) == [] and not list(tmp_path.iterdir())
    lines = writer.finish(iter(["entry"]))
    (table,) = tmp_path.iterdir()
    assert table.read_text() == "0\tbackground\n4\ta\n2\tb\n" and table.name in lines[0]


def test_volumes_of_several_folders_are_read(tmp_path):
    nibabel = pytest.importorskip("nibabel")
    files = [str(tmp_path / name) for name in ("b/one_0000.nii", "b/one_0001.nii", "a/x_0000.nii", "c/two_0000.nii")]
    files += [str(tmp_path / name) for name in ("c/two_0001.nii", "c/z_0000.nii", "c/z_0001.nii", "c/z_0001.nii.gz")]
    for folder in "abc":
        (tmp_path / folder).mkdir()
    for number, file in enumerate(files):
        nibabel.save(nibabel.Nifti1Image(np.zeros((2, 3, 4 + number // 3), np.int16), np.eye(4)), file)
    inputs = NewVolumes(files, make_task())
    assert list(inputs.names) == ["one", "two"] and [tuple(each) for each in inputs.files] == [
        tuple(files[:2]),
        tuple(files[3:5]),
    ]
    assert [file for file, _ in inputs.unreadable] == [files[2], files[5]]
    conflict = f"{files[7]} and z_0001.nii are both channel 1 of one volume; rename one"
    assert inputs.unreadable[1][1] == conflict


@pytest.mark.parametrize(
    "files, names",
    [
        (["p1/p1_flair.nii", "p1/p1_t1.nii", "p2/p2_FLAIR.nii", "p2/p2_T1.nii"], ["p1", "p2"]),
        (["p1/flair.nii", "p1/t1.nii"], ["p1"]),
        (["p1/imaging_0000.nii", "p1/imaging_0001.nii"], ["p1"]),
        (["p1/scan1_0000.nii", "p1/scan1_0001.nii", "p2/scan1_0000.nii", "p2/scan1_0001.nii"], ["p1", "p2"]),
    ],
)
def test_files_by_channels_are_volumes_with_the_name_of_the_case(tmp_path, files, names):
    for file in files:
        write_volume(tmp_path / file)
        write_volume(tmp_path / file.split("/")[0] / "seg.nii")
    task, is_by_name = make_task(), "t1" in files[1]
    task.channels = ["T1", "FLAIR"] if is_by_name else task.channels
    found, _, notices = find_volumes([str(tmp_path)])
    inputs = NewVolumes(found, task)
    assert (inputs.names, inputs.unreadable) == (names, []) and "seg.nii" in notices[0]
    ends = ["t1.nii", "ir.nii"] if is_by_name else ["00.nii", "01.nii"]
    assert [file.lower()[-6:] for each in inputs.files for file in each] == ends * len(names)


def test_weights_record_their_input_and_read_it_back():
    task = make_task()
    task.config = load([f"-cfg={ROOT}/{PHANTOMS}", "VOLUMES.NORMALIZE", "[none, z_score]"]).values
    task.spacing, task.within = np.array([2.50049, 0.8125, 1.0]), "mask"
    recorded = task.signature()
    assert recorded == {
        "orientation": "RAS",
        "spacing_mm": [2.5, 0.813, 1.0],
        "normalize": ["none", "z_score"],
        "intensity_window": [-200.0, 300.0],
        "z_score": "mask",
        "channels": ["CT", "PET"],
        "label_numbers": [0, 4, 2],
    }
    samples = SegmentedSamples(SyntheticOrgans(None, "val", None), IntensityConfig(("none",)))
    of_samples = task.signature(samples)
    assert of_samples["number of classes"] == 3 and of_samples["classes"] == ["background", "a", "b"]
    names = ("background", "a", "b")
    for name in ("spacing_mm", "channels", "label_numbers"):
        with pytest.raises(UserError, match="^the weights do not record their labels, channels and spacing: pass the"):
            make_task().load_meta(CheckpointMeta(3, names, {**recorded, name: None}))
    with pytest.raises(UserError, match="^the weights do not record"):
        make_task().load_meta(CheckpointMeta(3, None, recorded))
    for wrong, told in (
        ({"spacing_mm": [1.0, 0.0, 1.0]}, r"Expected `float` > 0.0 - at `\$.spacing_mm\[1\]`"),
        ({"label_numbers": [0, 4]}, "3 classes, and 2 numbers of them"),
        ({"regions": {"a": [3]}, "regions_class_order": [4]}, "Expected regions of label_numbers only"),
    ):
        with pytest.raises(UserError, match=f"^about.yaml: {told}"):
            make_task().load_meta(CheckpointMeta(3, names, {**recorded, **wrong}))
    other = VolumeSegmentation(task.config)
    other.load_meta(CheckpointMeta(3, names, recorded))
    assert other.signature() == recorded and other.class_names == [*names] and other.within == "mask"
    other.config = load([f"-cfg={ROOT}/{PHANTOMS}", "VOLUMES.SPACING_MM", "[3, 2, 1]"]).values
    other.load_meta(CheckpointMeta(3, names, recorded))
    assert other.spacing.tolist() == [3.0, 2.0, 1.0]


def test_labels_classes_and_outputs_that_do_not_fit_are_refused():
    task = make_task()
    sample = {"volume": np.zeros((2, 1, 2, 2), np.float32), "labels": np.array([[[0, IGNORED], [2, 1]]], np.uint8)}
    task.check_sample(sample)
    sample["labels"][0, 1] = 3, 7
    with pytest.raises(BadSample, match="^2 of 4 voxels .* as 7: with 3 classes labels go from 0, .*, to 2, and"):
        task.check_sample(sample)
    sample["volume"][1, 0, 0, 1] = np.inf
    with pytest.raises(BadSample, match=r"^volume\[1, 0, 0, 1\] is inf;"):
        task.check_sample(sample)
    few = VolumeSegmentation(load([f"-cfg={ROOT}/{PHANTOMS}", "-num_classes=3"]).values)
    with pytest.raises(
        UserError, match=r"is 3, but there are 5 classes with the background \(background, soft tissue,"
    ):
        few.build_dataset("val", None)
    labels = np.zeros((1, 2, 2), np.uint8)
    predicted = np.array([[[0, 1], [IGNORED, 1]]], np.uint8)
    with pytest.raises(UserError, match="outputs for a volume are not finite, so it cannot be scored"):
        task.build_metrics().update(predicted, labels, np.ones(3))
    with pytest.raises(BadSample, match="the model's outputs are not finite"):
        get_aspect(task, Predictable).prediction_rows(SegmentedVolume(0, predicted, labels, np.eye(3)))


class NoVolumes(SegmentedVolumes):
    """A user's data set whose folder is empty."""

    read = source = case = None

    def __init__(self, data_path, split, cache_folder, options):
        self.class_names = ["background", "a"]

    def __len__(self):
        return 0


@pytest.mark.parametrize("path, place", [("-data_path=/data", " at /data"), ("-seed=0", "")])
def test_a_split_of_a_data_set_of_ones_own_without_volumes_is_told(tmp_path, path, place):
    with forgotten():
        register_dataset("no_volumes", NoVolumes)
        task = VolumeSegmentation(load([f"-cfg={ROOT}/{PHANTOMS}", "-dataset=no_volumes", path]).values)
        message = refusal_of(task.build_dataset, "val", tmp_path)
    assert message == f"dataset no_volumes has no val volumes{place}"


def test_scipy_is_asked_for_before_training_and_only_for_distances(monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy", None)
    make_task("VOLUMES.SURFACE_DISTANCES", "false").build_dataset("val", None)
    with pytest.raises(UserError, match=r"VOLUMES.SURFACE_DISTANCES true \(false skips distances\): requires scipy"):
        make_task("VOLUMES.SURFACE_DISTANCES", "true").build_dataset("val", None)
