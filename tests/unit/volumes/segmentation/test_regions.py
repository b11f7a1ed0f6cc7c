"""Regions: what dataset.json says, nnU-Net's losses, painted maps, scores of regions."""

import itertools
import json

import numpy as np
import paddle
import pytest
from support.files.nnunet_folders import REGIONS, make_labels, raw_data
from support.files.volume_files import AFFINE

from paddlevit_dist import UserError
from paddlevit_dist.core.settings import load
from paddlevit_dist.core.tasks.aspects import get_aspect
from paddlevit_dist.core.tasks.prediction import CheckpointMeta
from paddlevit_dist.core.tasks.protocols import Checkable, Exportable
from paddlevit_dist.core.tasks.step_types import StepPosition
from paddlevit_dist.volumes.geometry import to_canonical
from paddlevit_dist.volumes.segmentation.dataset import IGNORED, SegmentationOptions
from paddlevit_dist.volumes.segmentation.fingerprint import fingerprint
from paddlevit_dist.volumes.segmentation.metrics import VolumeMetrics, surface_distances
from paddlevit_dist.volumes.segmentation.nnunet import NnUNet
from paddlevit_dist.volumes.segmentation.prediction import LabelWriter
from paddlevit_dist.volumes.segmentation.regions import (
    LabelRegion,
    describe_regions,
    load_regions,
    name_labels,
    read_regions,
)
from paddlevit_dist.volumes.segmentation.samples import VolumeRecord
from paddlevit_dist.volumes.segmentation.task import VolumeSegmentation

PHANTOMS = "configs/volume_unet3d_phantoms.yaml"
BRATS = {"background": 0, "whole": [2, 3, 1], "core": [3, 2], "enhancing": 3, "ignore": 4}
WHOLE, CORE, ENHANCING = [LabelRegion((1, 2, 3), 1), LabelRegion((2, 3), 2), LabelRegion((3,), 3)]


def make_task(*words):
    task = VolumeSegmentation(load([f"-cfg={PHANTOMS}", "VOLUMES.CROP_SIZE", "[4, 6, 5]", *words]).values)
    task.class_names, task.numbers = ["whole", "core", "enhancing"], [0, 1, 2, 3]
    task.regions = [WHOLE, CORE, ENHANCING]
    return task


def test_regions_are_read_and_remembered():
    read = read_regions("dataset.json", BRATS, [1, 2, 3])
    assert read.numbers == [0, 1, 2, 3] and read.ignored == 4
    assert read.regions == {"whole": WHOLE, "core": CORE, "enhancing": ENHANCING}
    assert read_regions("dataset.json", {"background": 0, "a": [7, 65_535]}, [7]).numbers == [0, 7, 65_535]
    kidneys = {"background": 0, "kidney": [10, 20, 30], "mass": [20, 30], "tumor": [20]}  # KiTS's order, wide numbers
    numbers, regions, ignored = read_regions("dataset.json", kidneys, [10, 30, 20])
    assert numbers == [0, 10, 20, 30] and ignored is None
    assert list(regions.values()) == [LabelRegion((1, 2, 3), 1), LabelRegion((2, 3), 3), LabelRegion((2,), 2)]
    described = describe_regions(list(regions), list(regions.values()), numbers)
    assert described == {
        "regions": {"kidney": [10, 20, 30], "mass": [20, 30], "tumor": [20]},
        "regions_class_order": [10, 30, 20],
    }
    assert load_regions(json.loads(json.dumps(described)), numbers) == list(regions.values())
    assert name_labels(list(regions), list(regions.values()), numbers) == ["background", "kidney", "tumor", "mass"]


@pytest.mark.parametrize(
    "changes, order, said",
    [
        ({}, None, 'there is no "regions_class_order": expected'),
        ({}, [1, 2], "regions_class_order has 2 numbers for 3 regions"),
        ({}, [1, 2, 7], r"regions_class_order has 7, which is not a number of a region \(1, 2, 3\)"),
        ({}, [1, 2, 2.0], "regions_class_order has 2.0"),
        ({}, [1, None, 2], "regions_class_order has None"),
        ({"core": [2, None]}, [1, 2, 3], "None is not a label's number"),
        ({}, [1, 2, 2], "a number twice"),
        ({}, [2, 1, 3], r"\[2, 1, 3\] would paint voxels of label 1 \(whole\) as 2, which is in whole, core: expected"),
        ({"core": [0, 2]}, [1, 2, 3], "region 'core' is \\[0, 2\\]: 0 is the background"),
        ({"core": [2, 2]}, [1, 2, 3], "a number occurs twice"),
        ({"core": []}, [1, 2, 3], "it has no number"),
        ({"core": [2, "3"]}, [1, 2, 3], "'3' is not a label's number"),
        (
            {"core": [2, 65_536]},
            [1, 2, 3],
            "65536 is not a label's number; expected different whole numbers from 1 to 65,535",
        ),
        ({"core": [2, 2.5]}, [1, 2, 3], "2.5 is not a label's number"),
        ({"core": [2, 4]}, [1, 2, 3], "4 is the number of the label 'ignore'"),
        ({"core": [3, 2, 1]}, [1, 2, 3], "'whole' and 'core' have the same numbers"),
        ({"background": [0, 1]}, [1, 2, 3], 'also needs "background": 0'),
        ({"ignore": [4, 5]}, [1, 2, 3], "label 'ignore' has \\[4, 5\\], expected one number"),
    ],
)
def test_an_odd_file_is_refused_in_one_line(changes, order, said):
    with pytest.raises(UserError, match=said) as error:
        read_regions("data/dataset.json", {**BRATS, **changes}, order)
    assert str(error.value).startswith("data/dataset.json: ") and "\n" not in str(error.value)


def test_only_orders_that_give_every_label_its_regions_back_are_read():
    """By painting each label voxel by voxel, of every order of nested, separate and partly overlapping regions."""
    accepted = 0
    for members in itertools.product(([1], [1, 2], [1, 2, 3], [2, 3], [3]), repeat=3):
        for order in itertools.permutations((1, 2, 3)):
            numbers = {number for region in members for number in region}
            painted = dict.fromkeys(numbers, 0)
            for region, paint in zip(members, order):
                painted.update(dict.fromkeys(region, paint))
            comes_back = all(
                (number in region) == (painted[number] in region) for number in numbers for region in members
            )
            labels = {"background": 0, **{f"region {index}": region for index, region in enumerate(members)}}
            is_valid = len(set(map(tuple, members))) == 3 and set(order) <= numbers and comes_back
            try:
                read_regions("dataset.json", labels, list(order))
            except UserError:
                assert not is_valid, (members, order)
            else:
                assert is_valid, (members, order)
                accepted += 1
    assert accepted


def test_losses_are_nnunets_dice_and_binary_cross_entropy():
    """Of two levels, by loops over crops, regions and voxels; some voxels are ignored, and one region is absent.

    It is hardly predicted either, so that its Dice is decided by the constant.
    """
    task, generator = make_task(), np.random.default_rng(0)
    sizes = ((4, 6, 5), (2, 3, 3))
    logits = [generator.standard_normal((2, 3, *size)).astype("float32") for size in sizes]
    labels = generator.integers(0, 4, (2, 4, 6, 5)).astype(np.uint8)
    labels[0, 0], labels[1][labels[1] == 3] = IGNORED, 2
    for own in logits:
        own[1, 2] -= 16
    batch = {"volume": paddle.zeros([1]), "labels": paddle.to_tensor(labels)}
    terms = task.train_step(lambda volume: [paddle.to_tensor(own) for own in logits], batch, StepPosition(1, 0, 1))
    counts = task.loss_normalizers({"labels": labels})
    assert list(terms) == list(counts) == ["cross_entropy", "dice", "cross_entropy 1/2", "dice 1/2"]
    for level, own in enumerate(logits):
        part = labels[:, :: 2**level, :: 2**level, :: 2**level]
        entropies, dice = [], []
        for row in range(2):
            known = part[row] != IGNORED
            for index, members in enumerate(((1, 2, 3), (2, 3), (3,))):
                true = np.isin(part[row], members)[known]
                p = 1 / (1 + np.exp(-own[row, index][known].astype(np.float64)))
                entropies += [-np.log(q if t else 1 - q) for q, t in zip(p, true)]
                dice.append(1 - (2 * p[true].sum() + 1e-5) / (p.sum() + true.sum() + 1e-5))
        end, weight = " 1/2" if level else "", (1 / 3 if level else 2 / 3)
        for name, parts, own_weight in (("cross_entropy", entropies, weight), ("dice", dice, weight)):
            term = terms[name + end]
            assert float(term.sum) == pytest.approx(sum(parts), rel=1e-4) and term.weight == pytest.approx(own_weight)
            assert float(term.count) == counts[name + end] == len(parts)


def test_losses_stay_finite_and_have_gradients_where_they_should():
    task = make_task()
    logits = paddle.to_tensor(np.full((1, 3, 8), 200.0, np.float32), stop_gradient=False)
    losses = task._losses(logits, paddle.to_tensor([[0, 0, 1, 2, IGNORED, IGNORED, 3, 3]]))
    sum(loss for loss, _ in losses.values()).backward()
    gradient = logits.grad.numpy()
    assert np.isfinite(gradient).all() and (gradient[0, :, 4:6] == 0).all() and (gradient[0, :, 0] > 0.9).all()


def test_regions_are_painted_in_order_over_each_other():
    """As nnU-Net's convert_logits_to_segmentation, voxel by voxel, at twice the depth; an infinite output is marked."""
    task = make_task()
    maps = np.random.default_rng(1).standard_normal((1, 3, 4, 6, 5)).astype("float32")
    maps[0, 1, 3, 5, 4] = np.inf
    record = VolumeRecord(0, (7, 6, 5), ((1.0, 0, 0), (0, 2.0, 0), (0, 0, 3.0)), (2.0, 2.0, 3.0))
    found = task.class_map(lambda windows: paddle.to_tensor(maps), paddle.zeros([1, 4, 6, 5]), record).numpy()
    expected = np.zeros((7, 6, 5), np.uint8)
    for place in np.ndindex(expected.shape):
        lines = maps[0, :, :, place[1], place[2]].astype(np.float64)
        with np.errstate(invalid="ignore"):
            outputs = [np.interp(place[0] / 2, np.arange(4), line) for line in lines]
        for output, painted in zip(outputs, (1, 2, 3)):
            if 1 / (1 + np.exp(-output)) > 0.5:
                expected[place] = painted
    expected[4:, 5, 4] = IGNORED  # also where an infinite output has the weight 0
    np.testing.assert_array_equal(found, expected, strict=True)


def test_scores_are_those_of_the_masks_of_regions():
    """Each region's Dice and distance by its own mask, of two volumes with ignored voxels."""
    generator, task = np.random.default_rng(2), make_task()
    metrics, dice, distances = task.build_metrics(), [], []
    for _ in range(2):
        true, found = (generator.integers(0, 4, (5, 6, 7)).astype(np.uint8) for _ in range(2))
        true[0] = IGNORED
        metrics.update(found, true, np.array([2.0, 1.0, 1.0]))
        for members in ((1, 2, 3), (2, 3), (3,)):
            masks = np.isin(true, members), np.isin(found, members) & (true != IGNORED)
            dice.append(2 * (masks[0] & masks[1]).sum() / (masks[0].sum() + masks[1].sum()))
            distances.append(surface_distances(*masks, np.array([2.0, 1.0, 1.0]))[0])
    values = metrics.compute(metrics.state)
    by_region = np.reshape(dice, (2, 3)).mean(axis=0)
    assert [values[f"Dice {name}"] for name in task.class_names] == pytest.approx(by_region)
    assert values["Dice"] == pytest.approx(by_region.mean()) and values["assd_mm"] == pytest.approx(np.mean(distances))
    plain = VolumeMetrics(["background", "a", "b", "c"])
    assert plain.update(found, true, np.ones(3))[2, :1] == pytest.approx(dice[-1])  # a region of one label


def test_a_folder_of_regions_is_read_described_and_written(tmp_path, fewer_drawn_voxels):
    root = raw_data(tmp_path, description=REGIONS)
    dataset = NnUNet(str(root), "train", root / "cache", SegmentationOptions())
    assert dataset.class_names == ["organs", "liver"] and dataset.num_classes == 2 and dataset.numbers == [0, 2, 5]
    labels, number = dataset.stored_labels(0).array, int(dataset.case(0)[-1])
    upright, _ = to_canonical(make_labels(number), AFFINE)
    np.testing.assert_array_equal(labels, np.array([0, 0, 1, 0, 0, 2, 0, 0, 0, IGNORED])[upright])
    lines = [line for line in fingerprint(dataset) if line.startswith("class")]
    share = 100 * (labels % IGNORED > 0).sum() / (labels != IGNORED).sum()
    assert lines[1].startswith(f"class organs: {share:.3g} % of the voxels, in 2 of 2") and len(lines) == 3
    task = VolumeSegmentation(load([f"-cfg={PHANTOMS}", "VOLUMES.NORMALIZE", "[none]"]).values)
    task._load_dataset_meta(dataset)
    assert get_aspect(task, Checkable).labels_in({"labels": np.array([0, 1, IGNORED])}).tolist() == [0]
    about = task.signature()
    other = VolumeSegmentation(task.config)
    other.load_meta(CheckpointMeta(2, ("organs", "liver"), json.loads(json.dumps(about)), {}))
    assert other.regions == task.regions == [LabelRegion((1, 2), 1), LabelRegion((2,), 2)]
    assert get_aspect(other, Exportable).export_parts().about["regions"] == {"organs": [2, 5], "liver": [5]}
    writer = LabelWriter(tmp_path, dataset, task.class_names, task.numbers, task.regions)
    writer.finish([None])
    assert (tmp_path / "classes.txt").read_text() == "0\tbackground\n2,5\torgans\n5\tliver\n"
