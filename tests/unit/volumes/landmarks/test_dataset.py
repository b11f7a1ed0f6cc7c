"""The dataset read from a folder, and the embedded phantoms."""

import shlex

import numpy as np
import pytest
import yaml
from support.files.volume_files import AFFINE, voxels, world, write_landmarks, write_volume
from support.refusals import refusal_of

from paddlevit_dist import UserError
from paddlevit_dist.core.engine.compatibility import CheckpointDiff
from paddlevit_dist.core.settings import load
from paddlevit_dist.volumes.landmarks.dataset import LandmarkDataset, VolumeOptions
from paddlevit_dist.volumes.landmarks.mirroring import propose_pairs
from paddlevit_dist.volumes.landmarks.position_notes import find_exchanged
from paddlevit_dist.volumes.landmarks.task import LandmarkDetection
from paddlevit_dist.volumes.phantoms import NAMES, SyntheticLandmarks

NOSE, CHIN = (3.0, 4.0, 5.0), (10.0, 2.0, 8.0)  # voxels x, y, z


def make_folder(tmp_path, suffix=".nii.gz", **positions):
    positions = positions or {"nose": world(NOSE), "chin": world(CHIN)}
    for split in ("train", "val"):
        write_volume(tmp_path / split / f"case{suffix}")
        write_landmarks(tmp_path / split / "case.csv", positions)
    return tmp_path


def built(folder, **options) -> LandmarkDataset:
    return LandmarkDataset(str(folder), "train", folder / "cache", VolumeOptions(**options))


def told(folder, **options) -> str:
    return refusal_of(built, folder, **options)


def values_at(dataset: LandmarkDataset, index: int = 0) -> list:
    """Intensities at the (whole) voxels of the landmarks: they tell whether place and array belong together."""
    decoded, points = dataset.read(index)
    np.testing.assert_allclose(points, np.rint(points), atol=1e-4)
    return [int(decoded.array[tuple(np.rint(point).astype(int))]) for point in points]


EXPECTED = [int(voxels()[8, 2, 10]), int(voxels()[5, 4, 3])]  # chin, nose


def test_landmarks_in_voxels_too(tmp_path):
    dataset = built(make_folder(tmp_path, nose=NOSE, chin=CHIN), landmark_units="voxel")
    assert values_at(dataset) == EXPECTED
    np.testing.assert_allclose(dataset.world(0), [world(CHIN), world(NOSE)])


def test_a_missing_landmark_is_nan(tmp_path):
    folder = make_folder(tmp_path)
    write_landmarks(folder / "train" / "case.csv", {"nose": world(NOSE)})
    dataset = built(folder)  # the other split names the chin
    assert np.isnan(dataset.read(0)[1][0]).all()


def test_decoded_volumes_are_kept_until_the_file_changes(tmp_path):
    folder = make_folder(tmp_path)
    dataset = built(folder)
    assert isinstance(dataset.read(0)[0].array, np.memmap)
    kept = sorted((folder / "cache" / "volumes").iterdir())
    assert len(kept) == 2
    modified = [file.stat().st_mtime_ns for file in kept]
    built(folder).read(0)
    assert [file.stat().st_mtime_ns for file in sorted((folder / "cache" / "volumes").iterdir())] == modified
    write_volume(folder / "train" / "case.nii.gz", voxels(1))
    np.testing.assert_array_equal(built(folder).read(0)[0].array, voxels(1), strict=True)


def test_resampling_keeps_landmarks_in_place(tmp_path):
    dataset = built(make_folder(tmp_path), spacing_mm=[1.0, 1.0, 1.0])
    decoded, points = dataset.read(0)
    np.testing.assert_allclose(decoded.geometry.spacing, 1.0)
    np.testing.assert_allclose(points, [[16.0, 3.0, 10.0], [10.0, 6.0, 3.0]], atol=1e-4)
    np.testing.assert_allclose(decoded.geometry.world(points)[1], world(NOSE), atol=1e-4)


def test_bad_folders_are_told(tmp_path):
    assert (
        "needs -data_path"
        in pytest.raises(UserError, LandmarkDataset, None, "train", tmp_path, VolumeOptions()).value.args[0]
    )
    assert "train does not exist; dataset landmarks expects a folder" in told(tmp_path)
    (tmp_path / "train").mkdir()
    assert "contains no volumes" in told(tmp_path)
    write_volume(tmp_path / "train" / "case.nii.gz")
    assert "volume case in" in told(tmp_path) and "has no landmarks" in told(tmp_path)


def test_a_landmark_outside_its_volume_is_told(tmp_path):
    message = told(make_folder(tmp_path, nose=world((3.0, 4.0, 10.2)), chin=world(CHIN)))
    assert "train/case.csv: landmark 'nose' is outside case.nii.gz: voxel (3.0, 4.0, 10.2) of 14 x 12 x 10" in message
    assert "VOLUMES.LANDMARK_UNITS" in message
    file = tmp_path / "train" / "case.csv"
    file.write_text(file.read_text().replace("nose", '"no\nse"'))
    assert r"landmark 'no\nse' is outside" in told(tmp_path)


def test_mixed_spacing_is_told_and_resampled(tmp_path):
    folder = make_folder(tmp_path)
    coarse = AFFINE @ np.diag([2.0, 1.0, 1.0, 1.0])
    write_volume(folder / "train" / "other.nii.gz", affine=coarse)
    write_landmarks(folder / "train" / "other.csv", {"nose": world(NOSE, coarse)})
    message = told(folder)
    assert "other.nii.gz: the voxel spacing is 2 x 1.5 x 2 mm, but case.nii.gz has 2 x 1.5 x 1 mm" in message
    assert "VOLUMES.SPACING_MM" in message
    dataset = built(folder, spacing_mm=[2.0, 1.5, 2.0])
    assert [dataset.read(i)[0].array.shape for i in range(2)] == [(10, 12, 8), (10, 12, 14)]
    assert dataset.names == ["chin", "nose"] and dataset.placed() == [1, 2]  # "other" has no chin


def test_a_landmark_of_some_volumes_can_be_learned_and_no_zero_is_negative(tmp_path):
    for name, positions in (("a", {"nose": (-0.001, 0.004, 2.006)}), ("b", {"chin": (1, 1, 1)})):
        write_volume(tmp_path / "train" / f"{name}.npz", affine=np.eye(4))
        write_landmarks(tmp_path / "train" / f"{name}.csv", positions)
    dataset = built(tmp_path)
    assert dataset.notices == [] and dataset.names == ["chin", "nose"]
    (_, nose), _ = dataset.listed()["landmarks"]
    assert nose.tolist() == [0.0, 0.0, 2.01] and not np.signbit(nose).any()


def test_names_that_are_not_asked_for_are_told(tmp_path):
    assert "landmark 'nose' is not among VOLUMES.LANDMARKS (chin, ear)" in told(
        make_folder(tmp_path), landmarks=["chin", "ear"]
    )
    assert built(tmp_path, landmarks=["nose", "chin"]).names == ["nose", "chin"]


def test_phantoms_are_the_same_each_time_and_differ_from_each_other():
    first, second = (SyntheticLandmarks(None, "train", None, VolumeOptions()) for _ in range(2))
    np.testing.assert_array_equal(first.read(3)[0].array, second.read(3)[0].array, strict=True)
    assert not np.array_equal(first.read(3)[0].array, first.read(4)[0].array)
    val = SyntheticLandmarks(None, "val", None, VolumeOptions())
    assert not np.array_equal(first.read(0)[0].array, val.read(0)[0].array)
    assert (len(first), len(val)) == (96, 24)


def test_phantoms_have_their_landmarks_where_they_say():
    dataset = SyntheticLandmarks(None, "val", None, VolumeOptions())
    at = {name: [] for name in NAMES}
    for index in range(9):
        decoded, points = dataset.read(index)
        np.testing.assert_allclose(decoded.geometry.world(points), dataset.world(index), atol=1e-9)
        for name, point in zip(NAMES, points):
            if not np.isnan(point).any():
                assert decoded.geometry.contains(point)
                at[name].append(int(decoded.array[tuple(np.rint(point).astype(int))]))
    for side in ("left", "right"):
        assert abs(np.median(at[f"eye_{side}"]) - 12) < 30  # the eye's water
    assert np.median(at["chin"]) > 600 and np.median(at["occiput"]) > 500  # bone
    known = [(~np.isnan(dataset.world(index)).any(axis=1)).tolist() for index in range(len(dataset))]
    assert dataset.placed() == np.sum(known, axis=0).tolist()  # what a run's first lines tell
    assert 0 < np.size(known) - np.sum(known) < 24  # 4 % of 192


def with_eyes(folder, count, exchanged, names=("eye_left", "eye_right")):
    """Volumes in which the first name's landmark lies to the right of the second one's in the first ``exchanged``."""
    for number in range(count):
        write_volume(folder / "train" / f"case{number:02d}.npz")
        places = [world((9.0, 4.0, 5.0)), world((3.0, 4.0, 5.0))][:: 1 if number < exchanged else -1]
        write_landmarks(folder / "train" / f"case{number:02d}.csv", dict(zip(names, places)))
    return folder


@pytest.mark.parametrize("count, exchanged, is_told", [(10, 9, True), (1, 1, True), (10, 8, False), (2, 0, False)])
def test_landmarks_on_the_wrong_side_are_noticed(tmp_path, count, exchanged, is_told):
    notices = built(with_eyes(tmp_path, count, exchanged)).notices
    assert len(notices) == is_told
    if is_told:
        assert f"in {exchanged} of {count} volumes landmarks named left are to the right" in notices[0]
        assert "(eye_left:eye_right); check VOLUMES.COORDINATE_SYSTEM" in notices[0]


def test_of_several_pairs_most_decide(tmp_path):
    pairs = ["eye_left:eye_right", "ear_left:ear_right"]
    for number, (ears, is_known) in enumerate(((1, True), (-1, True), (1, False))):
        write_volume(tmp_path / "train" / f"case{number}.npz")
        places = (
            {"eye_left": (9.0, 4.0, 5.0), "eye_right": (3.0, 4.0, 5.0)} if is_known else {"ear_left": (5.0, 1.0, 1.0)}
        )
        if is_known:
            places.update({"ear_left": (6.0 + ears, 4.0, 5.0), "ear_right": (6.0 - ears, 4.0, 5.0)})
        write_landmarks(
            tmp_path / "train" / f"case{number}.csv", {name: world(place) for name, place in places.items()}
        )
    worlds, names = [case.world for case in built(tmp_path).cases], built(tmp_path).names
    assert propose_pairs(names) == pairs[::-1]
    assert find_exchanged("d", worlds[1:], names) == []  # one of two pairs
    (notice,) = find_exchanged("d", worlds[::2], names)
    assert notice.startswith("note: d: in 1 of 1 volumes ")  # the other has no pair


def test_names_without_sides_lie_on_no_wrong_side(tmp_path):
    assert built(with_eyes(tmp_path, 2, 2, ("chin", "nose"))).notices == []


def test_landmarks_of_the_other_world_that_lie_inside_are_noticed(tmp_path):
    """Voxels around the origin hold a head in either convention."""
    around = np.diag([1.0, 1.0, 1.0, 1.0])
    around[:3, 3] = -(np.array(voxels().shape[::-1]) - 1) / 2
    write_volume(tmp_path / "train" / "case.mha", voxels(), around)
    write_landmarks(tmp_path / "train" / "case.csv", {"ear_l": (-5.0, 1.0, 0.0), "ear_r": (5.0, 1.0, 0.0)})
    assert ["VOLUMES.COORDINATE_SYSTEM" in notice for notice in built(tmp_path).notices] == [True]
    assert built(tmp_path, coordinate_system="ras").notices == []


def test_a_remark_names_the_first_file_and_counts_the_others(tmp_path):
    import nibabel

    folder = make_folder(tmp_path, nose=NOSE, chin=CHIN)
    for name in ("case", "other"):
        image = nibabel.Nifti1Image(voxels().T, None)
        image.to_filename(folder / "train" / f"{name}.nii.gz")
        write_landmarks(folder / "train" / f"{name}.csv", {"nose": NOSE, "chin": CHIN})
    (notice,) = built(folder, landmark_units="voxel").notices
    assert notice.startswith(f"note: {folder / 'train' / 'case.nii.gz'} and 1 more: no orientation in the header")


def test_a_further_split_needs_no_landmarks(tmp_path):
    for split in ("train", "holdout"):
        write_volume(tmp_path / split / "a.nii.gz")
    write_landmarks(tmp_path / "train" / "a.csv", {"nose": world((3.0, 4.0, 5.0))})
    hidden = LandmarkDataset(str(tmp_path), "holdout", tmp_path)
    assert not hidden.labeled and hidden.names == ["nose"] and hidden.placed() == [0]
    assert LandmarkDataset(str(tmp_path), "train", tmp_path).labeled
    write_landmarks(tmp_path / "holdout" / "a.csv", {"nose": world((3.0, 4.0, 5.0))})
    assert LandmarkDataset(str(tmp_path), "holdout", tmp_path).labeled
    with pytest.raises(UserError, match=r"no split 'tset' \(-split\): it has holdout, train"):
        LandmarkDataset(str(tmp_path), "tset", tmp_path)


def test_a_split_of_no_training_needs_the_names_of_the_landmarks(tmp_path):
    write_volume(tmp_path / "holdout" / "a.nii.gz")
    assert refusal_of(LandmarkDataset, str(tmp_path), "holdout", tmp_path) == (
        f"{tmp_path}/holdout has no landmark files, nor have train and val next to it: set VOLUMES.LANDMARKS to "
        "the names of the model's landmarks, in their order"
    )
    named = LandmarkDataset(str(tmp_path), "holdout", tmp_path, VolumeOptions(landmarks=["chin", "nose"]))
    assert not named.labeled and named.names == ["chin", "nose"]


@pytest.mark.parametrize("count, named", [(3, "a.csv, b.csv, c.csv"), (5, "a.csv, b.csv, c.csv and 2 more")])
def test_landmarks_without_volumes_are_named(tmp_path, count, named):
    folder = make_folder(tmp_path)
    for name in "edcba"[-count:]:
        write_landmarks(folder / "train" / f"{name}.csv", {"nose": world(NOSE)})
    assert built(folder).notices == [f"note: {folder}/train: no volume matches {named}; not used"]


def test_files_of_other_formats_are_counted(tmp_path):
    folder = make_folder(tmp_path)
    for name in ("a.png", "b.PNG", "notes.docx", ".hidden.png"):
        (folder / "train" / name).write_bytes(b"1")
    assert f"note: {folder}/train also contains 2 .png, 1 .docx; not used" in built(folder).notices
    for file in (folder / "train").glob("case*"):
        file.unlink()
    assert "contains no volumes, but 2 .png, 1 .docx; expected a folder" in told(folder)


def test_a_data_set_that_never_names_a_landmark_of_the_weights_gets_the_key_that_names_it(tmp_path):
    folder = make_folder(tmp_path)
    named = [
        "TASK",
        "landmarks",
        "-dataset=landmarks",
        f"-data_path={folder}",
        f"-output={tmp_path}",
        "MODEL.NAME",
        "landmark_unet3d",
    ]

    def compared(*words):
        task = LandmarkDetection(load([*named, *words]).values)
        task.build_dataset("val", tmp_path)
        theirs = {**task.signature(), "landmarks": ["chin", "ear lobe", "nose"]}
        (tmp_path / "about.yaml").write_text(yaml.safe_dump({"input": theirs}))
        (tmp_path / "state.json").write_text("{}")
        return CheckpointDiff("evaluate", tmp_path, task.config, task).input()

    message = refusal_of(compared)
    remedy = message.rpartition("weights with ")[2].partition(", or add")[0]
    assert compared(*shlex.split(remedy)) == []  # as a shell would hand it over
