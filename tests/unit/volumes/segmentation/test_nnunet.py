"""nnU-Net's layout, and where labels lie."""

import json
import pickle

import nibabel
import numpy as np
import pytest
from support.files.nnunet_folders import SECOND, make_labels, raw_data
from support.files.volume_files import AFFINE, SHAPE, write_volume

from paddlevit_dist import UserError
from paddlevit_dist.images.data.guessing import guess
from paddlevit_dist.volumes.geometry import to_canonical
from paddlevit_dist.volumes.segmentation.dataset import IGNORED, SegmentationOptions
from paddlevit_dist.volumes.segmentation.fingerprint import (
    ChannelStatistics,
    DatasetFingerprint,
    _intensities,
    compute_fingerprint,
    find_misnamed,
    fingerprint,
    plan_intensities,
)
from paddlevit_dist.volumes.segmentation.nnunet import NnUNet, choose_cases, group_channels, read_description

FIRST = {"modality": {"0": "CT", "1": "PET"}, "labels": {"0": "background", "2": "spleen", "5": "liver", "9": "ignore"}}
pytestmark = pytest.mark.usefixtures("fewer_drawn_voxels")


def opened(root, split="train", **options) -> NnUNet:
    return NnUNet(str(root), split, root / "cache", SegmentationOptions(**options))


@pytest.mark.parametrize("description, suffix", [(SECOND, ".nii.gz"), (FIRST, ".nrrd")])
def test_channels_and_labels_are_read_as_classes(tmp_path, description, suffix):
    root = raw_data(tmp_path, suffix=suffix, description=description)
    dataset = opened(root)
    assert dataset.class_names == ["background", "spleen", "liver"] and dataset.numbers == [0, 2, 5]
    assert dataset.channels == ["CT", "PET"] and len(dataset) + len(opened(root, "val")) == 3
    channels, labels = dataset.read(0)
    number = int(dataset.case(0)[-1])
    assert dataset.describe(0) == str(root / "imagesTr" / f"case_{number}_0000{suffix}")
    files = [root / "imagesTr" / f"case_{number}_000{channel}{suffix}" for channel in (0, 1)]
    stored = [file.read_bytes() for file in (*files, root / "labelsTr" / f"case_{number}{suffix}")]
    assert dataset.peek(0, 3) == [(len(content), content[:3]) for content in stored]  # what machines compare
    expected, _ = to_canonical(make_labels(number), AFFINE)
    np.testing.assert_array_equal(labels.array, np.array([0, 0, 1, 0, 0, 2, 0, 0, 0, IGNORED])[expected])
    assert labels.array.shape == channels[0].array.shape == channels[1].array.shape
    for label, places in labels.places.items():
        assert (labels.array[tuple(places.T)] == label).all()
    assert sorted(labels.places) == [1, 2]
    assert channels[1].moments[0] == pytest.approx(100, abs=2) and channels[0].moments[1] == pytest.approx(20, abs=2)


@pytest.mark.parametrize("units", [("mm",), ("mm", "sec")])
def test_a_fourth_axis_is_channels_unless_the_header_says_time(tmp_path, units):
    """The Decathlon's tasks 01 and 05 are the first; ACDC's patient001_4d.nii.gz is the second."""
    labels = make_labels(0)
    for number in range(3):
        write_volume(tmp_path / "labelsTr" / f"p_{number}.nii.gz", labels)
        file = tmp_path / "imagesTr" / f"p_{number}.nii.gz"
        file.parent.mkdir(exist_ok=True)
        image = nibabel.Nifti1Image(np.stack([labels.T, labels.T + 100], axis=-1).astype(np.int16), AFFINE)
        image.header.set_xyzt_units(*units)
        image.to_filename(file)
    (tmp_path / "dataset.json").write_text(json.dumps(FIRST))
    if len(units) > 1:
        with pytest.raises(UserError, match=r"p_0\.nii\.gz: its fourth axis is time"):
            opened(tmp_path)
        return
    dataset = pickle.loads(pickle.dumps(opened(tmp_path)))
    first, second = (channel.array for channel in dataset.read(0)[0])
    np.testing.assert_array_equal(first, to_canonical(labels, AFFINE)[0])
    np.testing.assert_array_equal(second, first + 100)
    case = {"images": ["imagesTr/p_0.nii.gz"], "label": "labelsTr/p_0.nii.gz"}
    (tmp_path / "dataset.json").write_text(json.dumps({**FIRST, "dataset": {"a": case, "b": case}}))
    assert len(read_description(str(tmp_path / "dataset.json")).cases[0][1]) == 2


def test_the_folder_alone_tells_the_dataset(tmp_path):
    assert guess(str(raw_data(tmp_path, cases=2))).dataset == "nnunet"


def test_classes_of_weights_that_the_data_lack_are_taken_by_their_names(tmp_path):
    root, names = raw_data(tmp_path), ["background", "node", "liver", "spleen"]
    plain, dataset = opened(root), opened(root)  # spleen 2, liver 5
    (note,) = dataset.take_classes(names, [0, 1, 2, 3])
    assert "dataset.json lacks the class node of the weights" in note
    assert (dataset.class_names, dataset.numbers) == (names, [0, 1, 2, 3])
    expected = np.array([0, 3, 2, *[0] * 252, IGNORED])[plain.read(0)[1].array]
    np.testing.assert_array_equal(dataset.read(0)[1].array, expected)
    np.testing.assert_array_equal(dataset.stored_labels(0).array, expected)
    for others in (["background", "spleen", "kidney", "node"], ["background", "spleen"], plain.class_names):
        assert opened(root).take_classes(others, range(len(others))) == []


def listed_data(root, **changes):
    """The files of ``raw_data`` under other names in another folder, which dataset.json lists."""
    raw_data(root)
    cases = {}
    for number in range(3):
        files = [f"imagesTr/case_{number}_000{channel}.nii.gz" for channel in (0, 1)] + [
            f"labelsTr/case_{number}.nii.gz"
        ]
        moved = [root / "scans" / f"{number}" / f"{name}.nii.gz" for name in ("ct", "pet", "seg")]
        for file, target in zip(files, moved, strict=True):
            target.parent.mkdir(parents=True, exist_ok=True)
            (root / file).rename(target)
        paths = [str(moved[0]), f"scans/{number}/pet.nii.gz", f"$SCANS/{number}/seg.nii.gz"]
        cases[f"p{number}"] = {"images": paths[:2], "label": paths[2]}
    cases.update(changes)
    for folder in ("imagesTr", "labelsTr"):
        (root / folder).rmdir()
    (root / "dataset.json").write_text(json.dumps({**SECOND, "file_ending": ".nii.gz", "dataset": cases}))
    return root


def test_volumes_that_the_description_lists_are_those_of_the_folders(tmp_path, monkeypatch):
    monkeypatch.setenv("SCANS", "scans")  # nnU-Net replaces environment variables
    root, whole = listed_data(tmp_path / "listed"), raw_data(tmp_path / "raw")
    assert guess(str(root)).dataset == "nnunet"
    for split in ("train", "val"):
        found, expected = opened(root, split), opened(whole, split)
        assert [found.case(index)[1:] for index in range(len(found))] == [name[5:] for name in expected.names]
        for index in range(len(found)):
            (channels, labels), (others, other_labels) = found.read(index), expected.read(index)
            assert all(np.array_equal(one.array, other.array) for one, other in zip(channels, others, strict=True))
            assert np.array_equal(labels.array, other_labels.array)
            assert found.source(index).file.endswith("ct.nii.gz")


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"images": ["scans/0/ct.nii.gz"], "label": "scans/0/seg.nii.gz"}, "p1 has 1 images, expected one for each of"),
        ({"images": ["scans/0/ct.nii.gz", "no.nii.gz"], "label": "scans/0/seg.nii.gz"}, "p1 names .*/no.nii.gz, which"),
        ({"images": "scans/0/ct.nii.gz"}, '"label": "files/seg.nii.gz"}}; p1 is '),
    ],
)
def test_what_is_wrong_with_a_listed_volume_is_told(tmp_path, monkeypatch, entry, said):
    monkeypatch.setenv("SCANS", "scans")
    with pytest.raises(UserError, match=f"dataset.json: .*{said}"):
        opened(listed_data(tmp_path, p1=entry))


def test_a_folder_without_volumes_says_where_they_are_expected(tmp_path):
    (tmp_path / "dataset.json").write_text(json.dumps(SECOND))
    with pytest.raises(UserError, match='imagesTr/NAME_0000.nii.gz .*, or "dataset" in it'):
        opened(tmp_path)


def test_folds_are_nnunets(tmp_path):
    """The second fold of 11 names by scikit-learn's KFold(5, shuffle=True, random_state=12345), as nnU-Net draws it:
    parts of a shuffled order, of which the first has one more."""
    names = [f"n{number:02d}" for number in range(11)]
    order = np.random.RandomState(12345).permutation(11)
    sizes = [3, 2, 2, 2, 2]
    for fold in range(5):
        held_out = {names[place] for place in order[sum(sizes[:fold]) : sum(sizes[: fold + 1])]}
        assert choose_cases(str(tmp_path / "none.json"), names, "val", fold) == held_out
        assert choose_cases(str(tmp_path / "none.json"), names, "train", fold) == set(names) - held_out
    (tmp_path / "splits_final.json").write_text(json.dumps([{"train": ["n01", "n02"], "val": ["n00"]}]))
    assert choose_cases(str(tmp_path / "splits_final.json"), names, "train", 0) == {"n01", "n02"}
    (tmp_path / "empty.json").write_text(json.dumps([{"train": ["n01"], "val": []}]))
    with pytest.raises(UserError, match="fold 0 has no volume in val"):
        choose_cases(str(tmp_path / "empty.json"), names, "val", 0)
    with pytest.raises(UserError, match="splits_final.json lists n02, but imagesTr has no such volume"):
        choose_cases(str(tmp_path / "splits_final.json"), names[:2], "train", 0)
    with pytest.raises(UserError, match="has 1 folds"):
        choose_cases(str(tmp_path / "splits_final.json"), names, "train", 1)


def test_numbers_that_are_no_channel_belong_to_the_name():
    files = ["d/scan_2023.nii.gz", "d/scan_2024.nii.gz", "d/x_0000.nii.gz"]
    assert [name for name, _ in group_channels(files, ["CT"])] == ["scan_2023", "scan_2024", "x"]
    with pytest.raises(UserError, match="2 files of x"):
        group_channels([*files, "d/x_0001.nii.gz"], ["CT"])
    with pytest.raises(UserError, match="no file x_0001"):
        group_channels(["d/x_0000.nii.gz"], ["CT", "PET"])


def shifted(affine):
    moved = affine.copy()
    moved[:3, 3] += 5
    return moved


def move_into_subfolders(root):
    for name in "dbace":
        (root / name).mkdir()
        (root / name / "dataset.json").write_text("{}")
    (root / "dataset.json").unlink()


@pytest.mark.parametrize(
    "spoil, said",
    [
        (lambda root: write_volume(root / "labelsTr" / "case_1.nii.gz", make_labels(1), shifted(AFFINE)), "origin"),
        (
            lambda root: write_volume(
                root / "labelsTr" / "case_1.nii.gz", make_labels(1), AFFINE @ np.diag([2, 2, 2, 1])
            ),
            "spacing",
        ),
        (lambda root: write_volume(root / "labelsTr" / "case_1.nii.gz", make_labels(1)[1:]), "voxels"),
        (lambda root: (root / "labelsTr" / "case_1.nii.gz").unlink(), "no labels for 1 of 3"),
        (lambda root: (root / "imagesTr" / "case_1_0001.nii.gz").unlink(), "case_1_0001"),
        (
            lambda root: (root / "dataset.json").write_text(
                '{"channel_names": {"0": "CT", "1": "PET"}, "labels": {"a": 0, "b": [1, 2]}}'
            ),
            'also needs "background": 0',
        ),
        (lambda root: (root / "dataset.json").write_text("{"), "dataset.json cannot be read"),
        (lambda root: (root / "dataset.json").unlink(), "has no dataset.json"),
        (move_into_subfolders, "has no dataset.json; use one of its subfolders: a, b, c, d, e$"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(tmp_path, spoil, said):
    root = raw_data(tmp_path)
    spoil(root)
    with pytest.raises(UserError, match=said) as error:
        [opened(root, split) for split in ("train", "val")]
    assert "\n" not in str(error.value)
    if said in ("origin", "spacing", "voxels"):
        assert "case_1.nii.gz" in str(error.value) and "case_1_0000.nii.gz" in str(error.value)


def test_inspect_data_tells_what_keys_are_chosen_by(tmp_path):
    """Sizes, spacings, milliliters and intensities against those of the files, of two volumes with other spacings."""
    root = raw_data(tmp_path, cases=3, affine=np.diag([1.0, 1.5, 2.0, 1.0]))
    write_volume(root / "labelsTr" / "case_2.nii.gz", make_labels(2), np.diag([1.0, 1.5, 4.0, 1.0]))
    for channel in range(2):
        voxels = np.full(SHAPE, 7 + channel, np.float32)
        write_volume(root / "imagesTr" / f"case_2_{channel:04d}.nii.gz", voxels, np.diag([1.0, 1.5, 4.0, 1.0]))
    (root / "splits_final.json").write_text(json.dumps([{"train": ["case_0", "case_2"], "val": ["case_1"]}]))
    with pytest.raises(UserError, match=r"such as the median: add VOLUMES.SPACING_MM \[3,1.5,1\]"):
        opened(root)
    lines = list(fingerprint(opened(root, spacing_mm=[4.0, 1.5, 1.0])))
    assert lines[0].startswith(
        "spacing as stored (depth, height, width) of 2 volumes: median 3 x 1.5 x 1, 2 x 1.5 x 1 to 4 x 1.5 x 1 "
    )
    depth, height, width = SHAPE
    assert f"median {3 * depth} x {1.5 * height:g} x {width}, {2 * depth} x " in lines[1]
    liver = [int((make_labels(seed) == 5).sum()) * depth_mm * 1.5 / 1000 for seed, depth_mm in ((0, 2), (2, 4))]
    assert f"in 2 of 2 volumes, {min(liver):.4g} to {max(liver):.4g} ml" in lines[4]
    ct = next(line for line in lines if line.startswith("channel CT"))
    first = np.random.default_rng([0, 0]).normal(0, 20, SHAPE).astype(np.float32)
    assert "0.5, 50 and 99.5" in ct and "VOLUMES.INTENSITY_MEAN_STD [" in ct
    assert float(ct.split("99.5 ")[1].split(",")[0]) > float(first.min())
    assert find_misnamed(["CT", "PET"], ["ct", "z_score"]) == [] and find_misnamed(["MRI"], ["percentiles"]) == []
    assert "names nnU-Net's normalization is [z_score]" in find_misnamed(["MRI"], ["ct"])[0]
    assert "is [none,min_max]" in find_misnamed(["noNorm", "rescale_to_0_1"], ["none", "z_score"])[0]


def test_channels_are_planned_as_nnunet_names_them(tmp_path, fewer_drawn_voxels):
    """Two channels of CT have a window each; the intensities of their classes are at 100 and 300, 1000 and 3000."""
    labels = np.zeros((6, 20, 16), np.uint8)
    labels[2:4, 2:12, 2:12], labels[2:4, 12:18, 2:12] = 1, 2
    names, dtypes = ["CT", "noNorm", "ct", "rescale_to_0_1", "MRI"], [np.float32, *4 * [np.int16]]
    for number in range(3):
        write_volume(tmp_path / "labelsTr" / f"case_{number}.nii.gz", labels)
        for channel in range(len(names)):
            intensities = np.array([-1, 100, 300]) * (10 if channel == 2 else 1)
            voxels = intensities[labels] if channel != 3 else np.full(labels.shape, number)
            write_volume(tmp_path / "imagesTr" / f"case_{number}_{channel:04d}.nii.gz", voxels.astype(dtypes[channel]))
    content = {"channel_names": dict(enumerate(names)), "labels": {"background": 0, "a": 1, "b": 2, "c": 3}}
    (tmp_path / "dataset.json").write_text(json.dumps(content))
    dataset = opened(tmp_path)
    found = compute_fingerprint([(dataset, index) for index in range(len(dataset))])
    drawn = []
    for index in range(len(dataset)):
        inside = dataset.stored_labels(index).array.ravel()
        places = np.random.RandomState(1234).choice(
            np.flatnonzero(inside), fewer_drawn_voxels // len(dataset)
        )  # nnU-Net's seed
        drawn.append(np.array([0, 100, 300])[inside[places]])
    values = np.concatenate(drawn)
    statistics = found.channels[0]
    assert statistics.percentiles == (100, 100, 300) and not statistics.is_constant
    assert (statistics.mean, statistics.deviation) == pytest.approx((values.mean(), values.std()), rel=1e-12)
    alone = compute_fingerprint([(dataset, 0)])
    assert len(alone.spacings) == 1 and alone.voxels[0].tolist() == found.voxels[0].tolist()
    keys = plan_intensities(names, found)
    assert keys["NORMALIZE"] == ["ct", "none", "ct", "min_max", "z_score"]
    assert keys["INTENSITY_WINDOW"] == [100, 300, 0, 1, 1000, 3000, 0, 1, 0, 1]
    assert keys["INTENSITY_MEAN_STD"][4:6] == pytest.approx([10 * value for value in keys["INTENSITY_MEAN_STD"][:2]])
    assert keys["INTENSITY_MEAN_STD"][0] == pytest.approx((2 * 100 + 1.2 * 300) / 3.2, rel=0.03)
    lines = list(fingerprint(dataset))
    assert "class c: in none of 2 volumes: a network cannot learn it from them" in lines
    assert "volumes (channel) whose voxels all have one intensity: case_" in "".join(lines)
    assert lines[-1].endswith("VOLUMES.INTENSITY_MEAN_STD " + str(keys["INTENSITY_MEAN_STD"]).replace(" ", ""))
    rgb = plan_intensities(["rgb_to_0_1"] * 3, found)
    assert rgb["NORMALIZE"] == ["percentiles"] * 3 and rgb["INTENSITY_WINDOW"] == [0, 255]
    assert rgb["INTENSITY_MEAN_STD"] is None
    constant = found._replace(channels=[found.channels[0]._replace(percentiles=(7.0, 7.0, 7.0))])
    with pytest.raises(UserError, match=r"channel 0 \(CT\): nearly all voxels with a class have the intensity "):
        plan_intensities(["CT"], constant)


def test_a_label_that_is_not_a_number_is_called_that(tmp_path):
    root = raw_data(tmp_path)
    labels = make_labels(0).astype(np.float32)
    labels[3, 2, 1] = np.nan
    write_volume(root / "labelsTr" / "case_1.nii.gz", labels)
    with pytest.raises(UserError, match=r"case_1.nii.gz: 1 of .* voxels are not finite; NaN is not a label"):
        for split in ("train", "val"):
            dataset = opened(root, split)
            [dataset.stored_labels(index) for index in range(len(dataset))]


def test_intensities_are_of_stored_voxels_and_every_volume_counts_alike(tmp_path):
    """One volume's classes have 200 voxels of 100, the other's 20 of 300: without resampling and with equal parts their
    mean is 200, their deviation 100, and no number lies between."""
    affine = np.diag([1.0, 1.0, 5.0, 1.0])
    description = {"channel_names": {"0": "CT"}, "labels": {"background": 0, "liver": 1}}
    for number, (count, value) in enumerate(((200, 100), (20, 300), (5, 7))):
        labels = np.zeros((6, 20, 16), np.uint8)
        labels.reshape(-1)[np.random.default_rng(number).permutation(labels.size)[:count]] = 1
        voxels = np.where(labels, value, -1000).astype(np.int16)
        write_volume(tmp_path / "labelsTr" / f"case_{number}.nii.gz", labels, affine)
        write_volume(tmp_path / "imagesTr" / f"case_{number}_0000.nii.gz", voxels, affine)
    (tmp_path / "dataset.json").write_text(json.dumps({**description, "file_ending": ".nii.gz"}))
    (tmp_path / "splits_final.json").write_text(json.dumps([{"train": ["case_0", "case_1"], "val": ["case_2"]}]))
    ct = [list(fingerprint(opened(tmp_path, spacing_mm=spacing)))[-1] for spacing in (None, [2.0, 3.0, 3.0])]
    assert ct[0] == ct[1]
    assert "VOLUMES.INTENSITY_WINDOW [100,300] VOLUMES.INTENSITY_MEAN_STD [" in ct[0]
    mean, deviation = map(float, ct[0].split("MEAN_STD [")[1].rstrip(")]").split(","))
    assert (mean, deviation) == pytest.approx((200, 100), abs=0.5)


def test_an_unknown_label_is_named_with_its_voxel(tmp_path):
    root = raw_data(tmp_path)
    labels = make_labels(0)
    labels[3, 2, 1] = 7
    for number in range(3):
        write_volume(root / "labelsTr" / f"case_{number}.nii.gz", labels)
    with pytest.raises(UserError, match=r"voxel 1, 2, 3 \(x, y, z from 0\) has the label 7"):
        opened(root).read(0)


def test_labels_that_a_header_scales_may_miss_whole_numbers_by_a_thousandth(tmp_path):
    root = raw_data(tmp_path)
    expected = opened(root).read(0)[1].array
    for missed in (-0.0009, 0.0009, -0.002, 0.002):
        for number in range(3):
            labels = (make_labels(number) + missed).astype(np.float32)
            write_volume(root / "labelsTr" / f"case_{number}.nii.gz", labels)
        if abs(missed) < 0.001:
            np.testing.assert_array_equal(opened(root).read(0)[1].array, expected, strict=True)
        else:
            with pytest.raises(UserError, match=r"has the label \S+, which is not in dataset.json"):
                opened(root).read(0)


def test_labels_of_another_spacing_are_those_of_the_nearest_voxels(tmp_path):
    root = raw_data(tmp_path, affine=np.diag([1.0, 1.5, 2.0, 1.0]))
    dataset = opened(root, spacing_mm=[1.0, 3.0, 1.0])  # (depth, height, width)
    channels, labels = dataset.read(0)
    stored = dataset.stored_labels(0).array
    assert labels.array.shape == channels[0].array.shape == (19, 7, 14) and stored.shape == SHAPE
    for z in range(19):
        np.testing.assert_array_equal(
            labels.array[z], stored[min(int(np.rint(z / 2)), 9)][[0, 2, 4, 6, 8, 10, 11]], strict=True
        )


def test_labels_without_volumes_are_told_and_tests_need_no_labels(tmp_path):
    """A list of one number is that number."""
    root = raw_data(tmp_path, description={**SECOND, "labels": {**SECOND["labels"], "spleen": [2]}})
    for name in ("x", "a"):
        write_volume(root / "labelsTr" / f"{name}.nii.gz", make_labels(0))
    dataset = opened(root)
    assert dataset.numbers == [0, 2, 5]
    assert dataset.notices[0] == f"note: {root / 'labelsTr'}: no volume matches a, x; not used"
    assert [shape.tolist() for shape in dataset.listed()["sizes"]] == [[10, 12, 14]] * 2
    assert list(dataset.listed()) == ["names", "sizes"]
    (root / "imagesTr").rename(root / "imagesTs")
    tests = opened(root, "test")
    assert list(tests.names) == ["case_0", "case_1", "case_2"] and not tests.labeled and tests.read(2)[1] is None
    assert tests.notices == [] and len(tests.read(2)[0]) == 2 and tests.stored_labels(0) is None
    write_volume(root / "labelsTs" / "case_1.nii.gz", make_labels(1))
    tests = opened(root, "test")
    assert tests.names == ("case_1",) and tests.labeled and "2 of 3 volumes of test have no labels" in tests.notices[0]


def test_intensities_of_a_channel_without_classes_or_with_one_value():
    assert _intensities("CT", None) == "channel CT: no voxel has a class"
    even = ChannelStatistics((7.0, 7.0, 7.0), 7.0, 0.0)
    said = "channel CT within the classes: nearly all voxels have the intensity 7"
    assert _intensities("CT", even) == said


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"labels": {"background": 0, "liver": True}}, "label 'liver' has the number True"),
        ({"labels": {"background": 0, "liver": "one"}}, "label 'liver' has the number 'one'"),
        ({"labels": {"background": 0, "liver": 0}}, "label 'liver' has the number 0"),
        ({"labels": {"background": 0, "liver": -1}}, "label 'liver' has the number -1"),
        ({"labels": {"background": 0, "liver": 65_536}}, "label 'liver' has the number 65536"),
        (
            {"labels": {"0": "background", "1": "liver", "2": "liver"}},
            r"same name \(background, liver, liver\); rename",
        ),
        ({"labels": {}}, 'expected "labels" such as'),
        ({"labels": ["background", "liver"]}, 'expected "labels" such as'),
        ({"labels": {"background": 0}}, r"has the numbers \[0\], expected 0 for the background and 1 to 254 more"),
        ({"labels": {"kidney": 1, "liver": 2}}, r"has the numbers \[1, 2\], expected 0 for the background"),
        ({"channel_names": {"1": "CT"}}, 'expected "channel_names" .* numbered from 0'),
        ({"channel_names": {}}, 'expected "channel_names" .* numbered from 0'),
        ({"channel_names": ["CT"]}, 'expected "channel_names" .* numbered from 0'),
    ],
)
def test_descriptions_in_another_form_are_refused(tmp_path, changes, message):
    file = tmp_path / "dataset.json"
    content = {"channel_names": {"0": "CT"}, "labels": {"background": 0, "liver": [65_535], "spleen": 3}}
    file.write_text(json.dumps(content))
    assert read_description(str(file)).numbers == [0, 3, 65_535]
    file.write_text(json.dumps({**content, **changes}))
    with pytest.raises(UserError, match=message) as refused:
        read_description(str(file))
    assert str(refused.value).startswith(str(file))


@pytest.mark.parametrize("content", ["[", "3", '[{"train": ["a"]}]', '[["a"]]', '[{"train": 1, "val": []}]'])
def test_listed_folds_in_another_form_are_refused(tmp_path, content):
    (tmp_path / "splits_final.json").write_text(content)
    with pytest.raises(UserError, match=r"splits_final\.json cannot be read \(.*\); expected \["):
        choose_cases(str(tmp_path / "splits_final.json"), ["a"], "train", 0)


def test_two_subjects_are_needed_for_folds_and_a_channel_is_one_file(tmp_path):
    file = str(tmp_path / "none.json")
    assert choose_cases(file, ["a", "b"], "val", 1) | choose_cases(file, ["a", "b"], "train", 1) == {"a", "b"}
    for names, fold, said in (
        (["a", "b"], 2, "2 volumes give 2 folds: set a number from 0 to 1"),
        (["a"], 0, "there is one volume, but validation needs another one: add a volume"),
    ):
        with pytest.raises(UserError, match=rf"VOLUMES\.FOLD {fold}: {said}$"):
            choose_cases(file, names, "val", fold)
    with pytest.raises(UserError, match=r"x/a_0001\.nrrd and a_0001\.nii\.gz are both channel 1 of one volume"):
        group_channels(["x/a_0000.nii.gz", "x/a_0001.nii.gz", "x/a_0001.nrrd"], ["CT", "PET"])


def test_a_channel_that_is_only_not_named_is_not_called_missing(tmp_path):
    first, second = tmp_path / "a_0000.nii.gz", tmp_path / "a_0001.nii.gz"
    refused: list[tuple[str, str]] = []
    assert group_channels([str(first)], ["CT", "PET"], refused) == []
    second.touch()
    assert group_channels([str(first)], ["CT", "PET"], refused) == []
    assert [file for file, _ in refused] == [str(first)] * 2
    expected = "expected one for each of the 2 channels (CT, PET)"
    assert refused[0][1] == f"{tmp_path} has no file a_0001 next to a_0000.nii.gz: {expected}"
    assert refused[1][1] == (
        f"{first}: a_0001.nii.gz next to it is not named: {expected}; name the folder, or the file of each channel"
    )


def test_a_folder_without_volumes_is_refused(tmp_path):
    (tmp_path / "imagesTr").mkdir()
    (tmp_path / "dataset.json").write_text(json.dumps(SECOND))
    with pytest.raises(UserError, match=r"imagesTr contains no volumes; expected the layout"):
        opened(tmp_path)


def test_intensities_of_ct_need_voxels_of_a_class():
    found = DatasetFingerprint(np.ones((1, 3)), np.ones((1, 3)), [1.0], np.ones((1, 2)), np.ones((1, 2)), 0, [], [])
    assert plan_intensities(["MR"], found)["NORMALIZE"] == ["z_score"]
    with pytest.raises(UserError, match="no voxel of the labeled volumes has a class: the intensities of CT"):
        plan_intensities(["MR", "CT"], found)
