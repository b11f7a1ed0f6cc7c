"""Figures of label maps: tables of the sums that an evaluation kept, and slices of the worst volumes."""

import nibabel
import numpy as np
import paddle
import pytest
from PIL import Image

from paddlevit_dist.core.runtime.text_rendering import legend
from paddlevit_dist.core.runtime.transfers import to_device
from paddlevit_dist.core.settings import load
from paddlevit_dist.core.tasks.aspects import get_aspect
from paddlevit_dist.core.tasks.figures import class_colors
from paddlevit_dist.core.tasks.protocols import Drawable, Reportable
from paddlevit_dist.volumes import images
from paddlevit_dist.volumes.geometry import VolumeGeometry
from paddlevit_dist.volumes.images import orthogonal_slices
from paddlevit_dist.volumes.intensities import IntensityConfig
from paddlevit_dist.volumes.segmentation import figures
from paddlevit_dist.volumes.segmentation.dataset import IGNORED, LabelMap, LabelSource, SegmentedVolumes
from paddlevit_dist.volumes.segmentation.figures import class_slices
from paddlevit_dist.volumes.segmentation.prediction import LabelWriter
from paddlevit_dist.volumes.segmentation.samples import SegmentedSamples, SegmentedVolume
from paddlevit_dist.volumes.segmentation.task import VolumeSegmentation
from paddlevit_dist.volumes.store import DecodedVolume

NAMES = ["background", "a", "b", "c"]
STORED, RESAMPLED = (5, 8, 12), (10, 8, 6)  # voxels of 4, 2 and 1 mm, and of 2 mm


class Volumes(SegmentedVolumes):
    """Two channels, of which the first is 0, 1 or 2 in the classes; volume 2 has none, volume 4 is only ignored."""

    class_names, numbers, channels, spacing = NAMES, [0, 1, 2, 3], ["CT", "PET"], np.full(3, 2.0)

    def __init__(self) -> None:
        pass

    def __len__(self) -> int:
        return 5

    def stored_labels(self, index):
        labels = np.zeros(STORED, np.uint8)
        labels[1:3, 2:5, 2:8], labels[3, 5:7, 4:8] = 1, 2
        labels = np.roll(labels, index, axis=1) * (index != 2)
        labels[4, 7, :6] = IGNORED
        labels[:] = IGNORED if index == 4 else labels
        return LabelMap.from_array(labels, self.source(index).geometry)

    def read(self, index):
        labels = self.stored_labels(index).array.repeat(2, axis=0)[..., ::2]
        geometry = VolumeGeometry(RESAMPLED, np.diag([2.0, 2.0, 2.0, 1.0]))
        first = np.where(labels == IGNORED, 0, labels).astype(np.float32)
        first[:, :5] *= 0.5 if index == 1 else 1  # part of a class looks like the background
        return [DecodedVolume(first, geometry, (0, 1)), DecodedVolume(-first, geometry, (0, 1))], LabelMap.from_array(
            labels, geometry
        )

    def source(self, index):
        return LabelSource(None, VolumeGeometry(STORED, np.diag([1.0, 2.0, 4.0, 1.0])))

    def case(self, index):
        return f"case_{index}"


def network(windows):
    """The background, and a class around its intensity; what has 2 is always class 3 and thus wrong."""
    first = windows[:, :1]
    return paddle.concat([first * 0 + 0.5, 1 - (first - 1).abs() * 3, first * 0 - 1, first - 1.2], axis=1)


def draw(volume, spacing, labels, center):
    """Expected slices of labels with other voxels than the volume, and the list of classes beside them."""
    low, high = np.percentile(volume, (0.5, 99.5))
    shares = [new / old for new, old in zip(volume.shape, labels.shape)]
    indices = [[int((place + 0.5) // share) for place in range(n)] for n, share in zip(volume.shape, shares)]
    table = np.zeros((256, 4), np.float32)
    for number, color in enumerate(class_colors(3), 1):
        table[number] = (*color, 0.5)
    middle = [(at + 0.5) * share - 0.5 for at, share in zip(center, shares)]
    shown = (volume - low) / max(high - low, 1e-6)
    drawn = orthogonal_slices(shown, spacing, None, center=np.array(middle), classes=(labels[np.ix_(*indices)], table))
    entries = [(name, tuple(color.tolist())) for name, color in zip(NAMES[1:], class_colors(3))]
    listed = np.asarray(legend(entries, len(drawn), ink="white", paper="black"))[: len(drawn)]
    return np.concatenate([drawn, np.pad(listed, ((0, len(drawn) - len(listed)), (0, 0), (0, 0)))], axis=1)


@pytest.fixture(autouse=True)
def small_pictures(monkeypatch):
    monkeypatch.setattr(images, "_SHORTEST_SIDE", 32)


@pytest.fixture
def task():
    words = ["-cfg=configs/volume_unet3d_phantoms.yaml", "VOLUMES.CROP_SIZE", "[10, 8, 6]"]
    task = VolumeSegmentation(load([*words, "VOLUMES.TEST_MIRROR", "false"]).values)
    task.class_names, task.numbers, task.channels = NAMES, Volumes.numbers, Volumes.channels
    task.spacing = Volumes.spacing
    return task


def test_distances_tell_of_how_many_volumes_they_are(task, monkeypatch):
    monkeypatch.setattr(figures, "_SHOWN", 0)
    labels = Volumes().read(0)[1].array % IGNORED
    found, metrics = [labels, np.where(labels == 2, 0, labels), labels * 0], task.build_metrics()
    records = [(n, metrics.update(predicted, labels, np.full(3, 2.0))) for n, predicted in enumerate(found)]
    samples = SegmentedSamples(Volumes(), IntensityConfig(("none", "none")))
    classes, _ = figures.segmentation_figures(samples, records, NAMES, NAMES, None)
    assert classes.note.endswith("Distances are of fewer volumes, where a class is found: a 2 of 3, b 1 of 3.")


def test_tables_and_pictures_are_of_the_worst_volumes(task, monkeypatch):
    monkeypatch.setattr(figures, "_MOST_ROWS", 4)
    samples = SegmentedSamples(Volumes(), IntensityConfig(("none", "none")))
    metrics, order, found = task.build_metrics(), (3, 4, 1, 2, 0), {}
    for index in order:
        sample = task.collate([samples.sample(index, np.random.default_rng(0))])
        batch = {name: to_device(value) if isinstance(value, np.ndarray) else value for name, value in sample.items()}
        ((predicted, labels),) = task.segment_batch(network, batch)
        found[index] = predicted, labels, metrics.update(predicted.labels, labels, predicted.spacing)
    records = [(index, sums) for index, (_, _, sums) in found.items()]
    classes, gallery, slices, volumes = get_aspect(task, Reportable).figures(samples, records, network)

    values = {name: np.nan for kind in figures.CLASS_VALUES for name in [f"{kind} c"]} | metrics.compute({})
    labeled = [sum((found[index][1] == label).any() for index in order) for label in (1, 2, 3)]
    assert classes.columns == ["class", "Dice", "missed in", "volumes with it", *figures.CLASS_VALUES[1:]]
    assert labeled == [3, 3, 0]
    for row, name, number in zip(classes.rows, NAMES[1:], labeled, strict=True):
        expected = [values.get(f"{kind} {name}", np.nan) for kind in figures.CLASS_VALUES]
        said = [None if np.isnan(value) else pytest.approx(value, abs=6e-5) for value in expected]
        assert row == (name, said[0], values[f"missed {name}"], number, *said[1:])
    assert [row[2] for row in classes.rows] == [0, 3, 3] and classes.rows[2][6] is None

    columns = metrics.columns(metrics.per_sample())
    dice = dict(zip(order, columns["Dice"]))
    worst = sorted(
        order, key=lambda index: dice[index] if np.isfinite(dice[index]) else 2.0
    )  # as in ``order`` if equal
    assert np.isnan(dice[2]) and np.isnan(dice[4]) and dice[1] < dice[3] == dice[0] < 1
    assert worst == [1, 3, 0, 4, 2] and [row[0] for row in volumes.rows] == [f"case_{index}" for index in worst[:4]]
    assert volumes.columns == ("volume", *columns) and volumes.note == "The 4 worst of 5."
    assert get_aspect(task, Reportable).figures(samples, records[:4], network)[-1].note == ""
    for row in volumes.rows:
        at = order.index(int(row[0][-1]))
        assert row[1:] == tuple(
            None if np.isnan(column[at]) else pytest.approx(column[at], abs=6e-5) for column in columns.values()
        )

    assert [caption for _, caption in gallery.images] == [f"Dice {dice[n]:.3f}\ncase_{n}" for n in (1, 3, 0)]
    for (image, _), index in zip(gallery.images, (1, 3, 0)):
        predicted, labels, _ = found[index]
        wrong = (predicted.labels != labels) & (labels != IGNORED)
        center = [np.bincount(places).argmax() for places in np.nonzero(wrong)]
        volume = samples.dataset.read(index)[0][0].array
        views = [draw(volume, (2.0, 2.0, 2.0), labels_shown, center) for labels_shown in (labels, predicted.labels)]
        np.testing.assert_array_equal(image, np.concatenate(views), err_msg=str(index))
    for (stack, caption), index in zip(slices.stacks, (1, 3, 0), strict=True):
        predicted, labels, _ = found[index]
        is_wrong = ((predicted.labels != labels) & (labels != IGNORED)).any(axis=(1, 2))
        sides = [np.split(image, 2, axis=1) for image in stack]
        share = len(labels) / len(stack)
        wrong = {place for place, (left, right) in enumerate(sides) if not np.array_equal(left, right)}
        assert wrong >= {place for place in range(len(stack)) if is_wrong[int((place + 0.5) * share)]}, caption
        assert len(stack) == len(samples.dataset.read(index)[0][0].array) and wrong


def test_pictures_of_samples_show_the_middle_of_their_classes(task):
    samples, dataset = SegmentedSamples(Volumes(), IntensityConfig(("none", "none"))), Volumes()
    pairs = [(dataset.read(index)[0][0].array, dataset.read(index)[1].array) for index in (3, 4)]
    batch = {"volume": np.stack([np.stack([volume, -volume]) for volume, _ in pairs])}
    batch["labels"] = np.stack([labels for _, labels in pairs])
    drawing, (first, second) = get_aspect(task, Drawable), pairs
    for pictures in (drawing.visualize_batch(samples, batch, 1), drawing.visualize_eval_samples(samples, [3, 4])):
        assert [caption for _, caption in pictures] == ["a, b", "background"]
        inside = np.argwhere((first[1] > 0) & (first[1] < IGNORED))
        np.testing.assert_array_equal(pictures[0][0], draw(*first[:1], (2.0, 2.0, 2.0), first[1], inside.mean(axis=0)))
        np.testing.assert_array_equal(pictures[1][0], draw(*second[:1], (2.0, 2.0, 2.0), second[1], (4.5, 3.5, 2.5)))


def test_brightness_of_deep_volumes_is_that_of_every_second_slice():
    volume = np.random.default_rng(0).normal(0, 5, (130, 4, 3)).astype(np.float32)
    volume[1::2] += 100
    labels = np.zeros((130, 4, 3), np.uint8)
    found = class_slices(volume, np.ones(3), labels, ["background"])
    low, high = np.percentile(volume[::2], (0.5, 99.5))
    middle = (np.array(volume.shape) - 1) / 2
    expected = orthogonal_slices((volume - low) / (high - low), np.ones(3), None, center=middle)
    np.testing.assert_array_equal(found[:, : expected.shape[1]], expected)


@pytest.mark.parametrize(("numbers", "dtype"), [([0, 7, 255, 3], np.uint8), ([0, 7, 256, 3], np.uint16)])
def test_written_labels_have_the_numbers_of_the_data_and_a_picture(tmp_path, numbers, dtype):
    """Of volume 1, whose labels have other voxels than the network's input."""
    dataset = Volumes()
    labels = dataset.stored_labels(1).array % IGNORED
    labels[0, 0, 0] = 3
    steps = np.diag([4.0, 2.0, 1.0])
    volume = dataset.read(1)[0][0].array
    writer = LabelWriter(tmp_path, dataset, NAMES, numbers, [])
    assert writer.write(1, SegmentedVolume(1, labels, volume, steps)) == {
        "labels": "case_1.nii.gz",
        "picture": "case_1.png",
    }
    written = nibabel.load(tmp_path / "case_1.nii.gz")
    np.testing.assert_array_equal(np.asarray(written.dataobj).T, np.array(numbers, dtype)[labels], strict=True)
    np.testing.assert_array_equal(written.affine, np.diag([1.0, 2.0, 4.0, 1.0]))
    assert written.header.get_xyzt_units()[0] == "mm"
    with Image.open(tmp_path / "case_1.png") as picture:
        inside = np.argwhere(labels > 0).mean(axis=0)
        np.testing.assert_array_equal(np.asarray(picture), draw(volume, (2.0, 2.0, 2.0), labels, inside))
