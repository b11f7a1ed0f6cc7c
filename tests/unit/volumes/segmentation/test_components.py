"""Largest components: by walking over neighbors, and nnU-Net's decisions on label maps of files."""

import numpy as np
import pytest
from support.files.nnunet_folders import REGIONS, SECOND, raw_data
from support.files.volume_files import write_volume

from paddlevit_dist import UserError
from paddlevit_dist.core.settings import load
from paddlevit_dist.volumes.commands import run_components
from paddlevit_dist.volumes.segmentation.components import LabelPairs, decide_components, find_labels, keep_largest
from paddlevit_dist.volumes.segmentation.samples import VolumeRecord
from paddlevit_dist.volumes.segmentation.task import VolumeSegmentation, format_protocol


def walk(mask):
    """Return the components of a mask, each a set of voxels, over faces, edges and corners."""
    left, components = set(map(tuple, np.argwhere(mask).tolist())), []
    while left:
        reached = [left.pop()]
        for z, y, x in reached:
            near = {(z + a - 1, y + b - 1, x + c - 1) for a, b, c in np.ndindex(3, 3, 3)} & left
            left -= near
            reached.extend(near)
        components.append(set(reached))
    return components


def walked(labels, groups):
    labels = labels.copy()
    for group in groups:
        components = walk(np.isin(labels, group))
        for component in components:
            if len(component) < max(map(len, components)):
                labels[tuple(np.array(sorted(component)).T)] = 0
    return labels


@pytest.mark.parametrize("groups", [[], [(1,)], [(1, 2)], [(1, 2), (2,), (1,)]])
def test_smaller_components_become_background_in_order(groups):
    for seed in range(4):
        generator = np.random.default_rng(seed)
        labels = np.where(generator.random((6, 7, 8)) < 0.12, generator.integers(1, 3, (6, 7, 8)), 0).astype(np.uint8)
        before = labels.copy()
        np.testing.assert_array_equal(keep_largest(labels, groups), walked(labels, groups), strict=True)
        np.testing.assert_array_equal(labels, before, strict=True)


def test_names_are_classes_or_the_foreground():
    groups = {"background": (0,), "whole": (1, 2), "core": (2,)}
    assert (
        find_labels(["core", "foreground", "whole"], groups) == [(2,), (1, 2), (1, 2)] and find_labels([], groups) == []
    )
    with pytest.raises(UserError, match="LARGEST_COMPONENT names background; expected some of foreground, whole, core"):
        find_labels(["background"], groups)


def test_predictions_keep_what_the_key_says():
    """A network that copies its input: a second blob of the class is gone, and the protocol tells it."""
    task = VolumeSegmentation(
        load(["-cfg=configs/volume_unet3d_phantoms.yaml", "VOLUMES.LARGEST_COMPONENT", "[blob]"]).values
    )
    task.class_names = ["background", "blob"]
    volume = np.zeros((1, 6, 6, 6), np.float32)
    volume[0, :3, :3, :3], volume[0, 5, 5, 5] = 1, 1
    record = VolumeRecord(3, (6, 6, 6), ((1.0, 0, 0), (0, 1.0, 0), (0, 0, 1.0)), (1.0, 1.0, 1.0))
    labels = volume[0].astype(np.uint8)
    predicted, _ = task._to_prediction(record, lambda: (labels, labels, volume[0]))
    assert predicted.labels.sum() == 27 and predicted.labels[5, 5, 5] == 0 and labels[5, 5, 5] == 1
    assert format_protocol(task.config.VOLUMES).endswith("largest component of blob")


def make_folders(tmp_path, description, predictions):
    """A folder of three true volumes, each a liver and a spleen, and predictions made from them."""
    root = raw_data(tmp_path / "raw", description=description)
    for number in range(3):
        true = np.zeros((10, 12, 14), np.uint8)
        true[2:6, 3:9, 3:9], true[7:9, 3:6, 3:6] = 5, 2
        write_volume(root / "labelsTr" / f"case_{number}.nii.gz", true)
        write_volume(tmp_path / "found" / f"case_{number}.nii.gz", predictions(true.copy()))
    return LabelPairs(str(tmp_path / "found"), str(root), tmp_path / "cache")


def add_liver_far_away(labels):
    labels[0, 11, 12:] = 5
    return labels


def add_liver_and_split_spleen(labels):
    labels[8, 3:6, 3:6] = labels[7, 4, 3:6] = labels[7, 5, 5] = 0  # components of 3 and 2 true voxels
    return add_liver_far_away(labels)


def join(labels):
    labels[6, 4, 4] = 2  # one component of liver and spleen
    return labels


def add_much_liver_and_split_joined_spleen(labels):
    labels[0, :5], labels[0, 6:11] = 5, 5  # without them, the Dice of the liver rises from 0.67 to 1
    labels[7:9, 4, 3:6], labels[6, 3, 4] = 0, 2  # and that of the spleen falls from 0.77 to 0.48
    return labels


@pytest.mark.parametrize(
    "description, change, kept",
    [
        (SECOND, add_liver_far_away, ["liver"]),  # the spleen is a component of the foreground, so this is not kept
        (SECOND, lambda labels: labels, []),
        (SECOND, join, []),
        (SECOND, add_liver_and_split_spleen, ["liver"]),
        (SECOND, add_much_liver_and_split_joined_spleen, ["liver"]),  # the mean of both classes rises, too
        (REGIONS, add_liver_far_away, ["liver"]),
    ],
)
def test_decisions_are_those_of_single_scores(tmp_path, description, change, kept):
    pairs = make_folders(tmp_path, description, change)
    decisions = decide_components(pairs)
    assert [decision.name for decision in decisions][0] == "foreground" and len(decisions) == 3
    assert [decision.name for decision in decisions if decision.removes_smaller] == kept
    liver = next(decision for decision in decisions if decision.name == "liver")
    predicted, true = next(iter(pairs))
    expected = []
    for labels in (predicted, walked(predicted, [(2,)])):  # the second label is the liver
        both = ((labels == 2) & (true == 2)).sum()
        expected.append(2 * both / ((labels == 2).sum() + (true == 2).sum()))
    assert (liver.before, liver.after) == pytest.approx(tuple(expected))

    classes, removed = (
        {"spleen": (1,), "liver": (2,)} if description is SECOND else {"organs": (1, 2), "liver": (2,)},
        [],
    )
    for decision in decisions:  # each starts from what the ones before it left
        group = classes.get(decision.name, (1, 2))
        for score, groups in ((decision.before, removed), (decision.after, [*removed, group])):
            left, dices = walked(predicted, groups), {}
            for name, labels in classes.items():
                sides = np.isin(left, labels), np.isin(true, labels)
                dices[name] = 2 * (sides[0] & sides[1]).sum() / (sides[0].sum() + sides[1].sum())
            assert score == pytest.approx(dices.get(decision.name, np.mean(list(dices.values()))))
        removed += [group] * decision.removes_smaller


@pytest.mark.parametrize(
    ("change", "verdicts", "advice"),
    [
        (add_liver_far_away, ("all components", "all components", "its largest component only"), "liver"),
        (lambda labels: labels, ("all components",) * 3, None),
    ],
)
def test_the_command_tells_what_to_remove(tmp_path, capsys, change, verdicts, advice):
    make_folders(tmp_path, SECOND, change)
    run_components([str(tmp_path / "found"), str(tmp_path / "raw")])
    *lines, last = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in lines] == ["foreground", "spleen", "liver"]
    assert [line.partition("only: keep ")[2] for line in lines] == list(verdicts)
    said = f"use predict -largest_component={advice}, or VOLUMES.LARGEST_COMPONENT [{advice}]"
    assert last == f"3 volumes: {said if advice else 'no removal raises the Dice'}"


def test_a_class_that_is_neither_labeled_nor_predicted_has_no_dice(tmp_path, capsys):
    description = {**SECOND, "labels": {**SECOND["labels"], "kidney": 7}}
    first, *_, kidney = decide_components(make_folders(tmp_path, description, lambda labels: labels))
    assert first.before == 1 and np.isnan([kidney.before, kidney.after]).all() and not kidney.removes_smaller
    run_components([str(tmp_path / "found"), str(tmp_path / "raw")])
    line = capsys.readouterr().out.splitlines()[3]
    assert line == "kidney: Dice undefined, undefined with its largest component only: keep all components"


def test_the_foreground_is_kept_if_no_class_suffers(tmp_path):
    first, *others = decide_components(make_folders(tmp_path, SECOND, lambda labels: add_liver_far_away(join(labels))))
    assert (
        first.removes_smaller
        and first.after > first.before
        and not any(decision.removes_smaller for decision in others)
    )


def test_a_region_of_the_foregrounds_name_is_decided_once(tmp_path):
    labels = {"background": 0, "foreground": [2, 5], "liver": 5, "ignore": 9}
    pairs = make_folders(tmp_path, {**REGIONS, "labels": labels}, lambda labels: add_liver_far_away(join(labels)))
    assert [(each.name, each.removes_smaller) for each in decide_components(pairs)] == [
        ("foreground", True),
        ("liver", False),
    ]


def test_a_class_of_no_true_map_whose_predictions_are_all_removed_is_no_loss(tmp_path):
    def add_nowhere_true(labels):
        labels[0, 11, 12:] = 7
        return join(labels)

    description = {**SECOND, "labels": {**SECOND["labels"], "kidney": 7}}
    decisions = decide_components(make_folders(tmp_path, description, add_nowhere_true))
    assert decisions[0].removes_smaller and decisions[0].after > decisions[0].before


def test_predictions_without_labels_are_refused(tmp_path):
    pairs = make_folders(tmp_path, SECOND, lambda labels: labels[1:])
    with pytest.raises(UserError, match="case_0.nii.gz have different sizes, 9 x 12 x 14 and 10 x 12 x 14 voxels"):
        decide_components(pairs)
    write_volume(tmp_path / "found" / "other.nii.gz", np.zeros((2, 2, 2), np.uint8))
    for folder, said in (("found", "other.nii.gz without labels"), ("raw/imagesTr", "case_0_0000.nii.gz, ")):
        with pytest.raises(UserError, match=said):
            LabelPairs(str(tmp_path / folder), str(tmp_path / "raw"), tmp_path / "cache")
