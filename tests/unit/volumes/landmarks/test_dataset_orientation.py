"""One head in every format and orientation: the same voxels, landmarks and predictions."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.files.volume_files import AFFINE, voxels, world, write_landmarks, write_volume
from support.processes import ROOT

from paddlevit_dist import UserError
from paddlevit_dist.core import settings
from paddlevit_dist.core.inference.evaluation import SavedPredictions
from paddlevit_dist.core.registry.lookup import resolve
from paddlevit_dist.core.tasks.aspects import get_aspect
from paddlevit_dist.core.tasks.protocols import Predictable
from paddlevit_dist.core.tasks.step_types import EvaluationStep
from paddlevit_dist.volumes import landmark_files
from paddlevit_dist.volumes.landmarks.dataset import LandmarkDataset, VolumeOptions

STRAIGHT = np.diag([1.0, 1.5, 2.0, 1.0])
STRAIGHT[:3, 3] = [-7.0, -9.0, 31.0]
MARKS = {"chin": (10.0, 2.0, 8.0), "nose": (3.0, 4.0, 5.0)}  # voxels x, y, z of the unturned array
SUFFIXES = [".nii.gz", ".nii", ".npz", ".mha", ".mhd", ".nrrd", ".nhdr", ""]  # the last one is DICOM
TURNS = [((0, 1, 2), (1, 1, 1)), ((0, 1, 2), (-1, -1, 1)), ((2, 0, 1), (1, -1, 1)), ((1, 0, 2), (-1, 1, -1))]


def make_convention(suffix: str) -> str:
    return "ras" if suffix in (".nii.gz", ".nii", ".npz", ".npy") else "lps"


def as_convention(position: Any, convention: str) -> list[float]:
    x, y, z = position
    return [x, y, z] if convention == "ras" else [-x, -y, z]


def turn(array: np.ndarray, affine: np.ndarray, order: Any, signs: Any) -> Any:
    """The same head with its axes stored in another order (x, y, z) and direction."""
    stored = array.transpose([2 - axis for axis in order[::-1]])
    stored = stored[tuple(slice(None, None, sign) for sign in signs[::-1])]
    change = np.zeros((4, 4))  # stored voxel -> unturned voxel
    change[3, 3] = 1.0
    for new, old in enumerate(order):
        change[old, new] = signs[new]
        change[old, 3] = 0.0 if signs[new] > 0 else array.shape[2 - old] - 1
    return np.ascontiguousarray(stored), affine @ change


def write_head(folder: Path, case: str, suffix: str, affine: np.ndarray = AFFINE, turned: Any = TURNS[0]) -> Path:
    """A volume with a CSV file in the convention of its format."""
    array, place = turn(voxels(), affine, *turned)
    path = write_volume(folder / f"{case}{suffix}", array, place)
    positions = {name: as_convention(world(voxel, affine), make_convention(suffix)) for name, voxel in MARKS.items()}
    write_landmarks(folder / f"{case}.csv", positions)
    return path


def built(folder: Path, split: str = "train", **options: Any) -> LandmarkDataset:
    return LandmarkDataset(str(folder), split, folder / "cache", VolumeOptions(**options))


@pytest.mark.parametrize("affine", [STRAIGHT, AFFINE], ids=["straight", "oblique"])
def test_all_formats_and_orientations_give_one_array_and_one_set_of_landmarks(tmp_path, affine):
    for number, turned in enumerate(TURNS):
        for suffix in SUFFIXES:
            write_head(
                tmp_path / "train", f"{suffix[1:].replace('.', '_') or 'dicom'}_{number}", suffix, affine, turned
            )
    dataset = built(tmp_path)
    assert len(dataset) == len(SUFFIXES) * len(TURNS) and dataset.names == ["chin", "nose"]
    for index in range(len(dataset)):
        decoded, points = dataset.read(index)
        assert np.array_equal(decoded.array, voxels()), dataset.describe(index)
        assert decoded.window == dataset.read(0)[0].window
        np.testing.assert_allclose(decoded.geometry.affine, affine, atol=1e-4, err_msg=dataset.describe(index))
        np.testing.assert_allclose(points, [MARKS["chin"][::-1], MARKS["nose"][::-1]], atol=1e-4)


def test_resampled_arrays_have_one_shape_in_all_formats(tmp_path):
    """Spacing of 0.7 mm has other last digits in NIfTI, where 50 steps of it are 35 mm: a tie for steps of 2 mm."""
    affine = np.diag([0.7, 0.7, 0.7, 1.0])
    array = np.random.default_rng(0).integers(0, 1000, (51, 11, 21)).astype(np.int16)
    for case, suffix in (("a", ".nii.gz"), ("b", ".mha"), ("c", ".npz"), ("d", "")):
        write_volume(tmp_path / "train" / f"{case}{suffix}", array, affine)
        write_landmarks(tmp_path / "train" / f"{case}.csv", {"nose": as_convention((7, 3, 7), make_convention(suffix))})
    dataset = built(tmp_path, spacing_mm=[2.0, 2.0, 2.0])
    arrays = [dataset.read(index)[0].array for index in range(4)]
    for other in arrays[1:]:
        assert other.shape == arrays[0].shape
        np.testing.assert_allclose(other, arrays[0], atol=1e-3)


@pytest.mark.parametrize("suffix", [".nii.gz", ".mha", ".nrrd", ".npz", ""])
@pytest.mark.parametrize("wanted", ["ras", "lps"])
def test_volumes_world_is_for_landmarks_that_do_not_follow_their_volume(tmp_path, suffix, wanted):
    write_volume(tmp_path / "train" / f"case{suffix}")
    positions = {name: as_convention(world(voxel), wanted) for name, voxel in MARKS.items()}
    write_landmarks(tmp_path / "train" / "case.json", positions)
    dataset = built(tmp_path, coordinate_system=wanted)
    decoded = dataset.read(0)[0]
    assert np.array_equal(decoded.array, voxels()) and dataset.convention(0) == wanted
    np.testing.assert_allclose(dataset.read(0)[1][1], MARKS["nose"][::-1], atol=1e-4)
    if wanted != make_convention(suffix):
        with pytest.raises(
            UserError, match=rf"outside case.*read as {wanted.upper()} instead of .* it would be inside"
        ):
            built(tmp_path)


def task_for(data: Path, *arguments: str) -> Any:
    small = "VOLUMES.UNET_WIDTH 4 VOLUMES.UNET_DEPTH 2 VOLUMES.CROP_SIZE [12,12,16] VOLUMES.MIRROR_PAIRS none"
    recipe = [f"-cfg={ROOT}/configs/landmark_unet3d.yaml", "-dataset=landmarks", f"-data_path={data}"]
    values = settings.load([*recipe, *small.split(), *arguments]).values
    return resolve("task", values.TASK)(values)


def predict(data: Path, out: Path, *arguments: str) -> dict[str, list[dict[str, str]]]:
    """Rows of landmarks.csv by case, as a network with its first weights finds them."""
    import paddle

    task = task_for(data, *arguments)
    samples = task.build_dataset("val", out / "cache")
    paddle.seed(0)
    model = task.build_model()
    model.eval()
    out.mkdir(exist_ok=True)
    writer = SavedPredictions(get_aspect(task, Predictable).prediction_writer(out, samples), out, range(len(samples)))
    step = EvaluationStep(task.build_metrics(), writer)
    for index in range(len(samples)):
        batch = task.collate([samples.sample(index, np.random.default_rng(0))])
        with paddle.no_grad():
            task.eval_step(model, {name: paddle.to_tensor(array) for name, array in batch.items()}, step)
    step.writer.finish()
    rows: dict[str, list[dict[str, str]]] = {}
    with open(out / "landmarks.csv", newline="") as lines:
        for row in csv.DictReader(lines):
            rows.setdefault(row["case"], []).append(row)
    return rows


def position(row: dict[str, str]) -> list[float]:
    return [float(row[f"{axis}_mm"]) for axis in "xyz"]


def test_predictions_of_a_mixed_data_set_are_one_place_each_in_the_words_of_its_format(tmp_path):
    import nibabel
    import SimpleITK

    data, out = tmp_path / "data", tmp_path / "predictions"
    files = {name: write_head(data / "val", name, suffix) for name, suffix in
             (("nifti", ".nii.gz"), ("meta", ".mha"), ("nrrd", ".nrrd"), ("numpy", ".npz"), ("dicom", ""))}  # fmt: skip
    rows = predict(data, out)
    columns = "case,landmark,x_mm,y_mm,z_mm,confidence,radial_error_mm,world"
    assert (out / "landmarks.csv").read_text().splitlines()[0] == columns
    expected = rows["nifti"]
    for case, found in rows.items():
        convention = make_convention(files[case].suffix if case != "nifti" else ".nii.gz")
        for row, other in zip(found, expected):
            assert row["world"] == convention.upper() and row["landmark"] == other["landmark"]
            np.testing.assert_allclose(as_convention(position(row), convention), position(other), atol=2e-3)
            assert float(row["radial_error_mm"]) == pytest.approx(float(other["radial_error_mm"]), abs=1e-3)
            assert row["confidence"] == other["confidence"]
    # The libraries that users read such files with find the same voxel.
    index = nibabel.affines.apply_affine(np.linalg.inv(nibabel.load(files["nifti"]).affine), position(rows["nifti"][0]))
    meta = SimpleITK.ReadImage(str(files["meta"]))
    place = meta.TransformPhysicalPointToContinuousIndex(position(rows["meta"][0]))
    np.testing.assert_allclose(place, index, atol=1e-2)
    # Slicer's files say their world, and our readers understand them.
    for case, found in rows.items():
        convention = make_convention(files[case].suffix if case != "nifti" else ".nii.gz").upper()
        assert f"# CoordinateSystem = {convention}\n" in (out / f"{case}.fcsv").read_text()
        assert json.loads((out / f"{case}.mrk.json").read_text())["markups"][0]["coordinateSystem"] == convention
        for suffix in (".fcsv", ".mrk.json"):
            positions, space = landmark_files.read(str(out / f"{case}{suffix}"))
            assert space == "ras" and list(positions) == [row["landmark"] for row in found]
            for row in found:
                in_ras = as_convention(position(row), convention.lower())
                np.testing.assert_allclose(positions[row["landmark"]], in_ras, atol=1e-9)


def test_predictions_serve_as_landmarks_of_their_volumes(tmp_path):
    data, out = tmp_path / "data", tmp_path / "predictions"
    for case, suffix in (("nifti", ".nii.gz"), ("meta", ".mha"), ("dicom", "")):
        write_head(data / "val", case, suffix)
    predict(data, out)
    for case in ("nifti", "meta", "dicom"):
        (data / "val" / f"{case}.csv").unlink()
        (out / f"{case}.fcsv").rename(data / "val" / f"{case}.fcsv")
    for row in (row for found in predict(data, tmp_path / "again").values() for row in found):
        assert float(row["radial_error_mm"]) < 1e-3


def test_volumes_world_decides_the_words_of_predictions(tmp_path):
    data = tmp_path / "data"
    for case, suffix in (("nifti", ".nii.gz"), ("meta", ".mha")):
        write_head(data / "val", case, suffix)
        positions = {name: world(voxel) for name, voxel in MARKS.items()}
        write_landmarks(data / "val" / f"{case}.csv", positions)
    rows = predict(data, tmp_path / "out", "VOLUMES.COORDINATE_SYSTEM", "ras")
    assert [position(row) for row in rows["meta"]] == [position(row) for row in rows["nifti"]]
    assert {row["world"] for found in rows.values() for row in found} == {"RAS"}


def test_a_checkpoint_says_what_its_network_saw(tmp_path):
    """Spacing that differs in its last digits between formats is one spacing."""
    affine = np.diag([0.9375, 0.703125, 0.7, 1.0])
    said = []
    for case, suffix in (("a", ".nii.gz"), ("b", ".mha"), ("c", "")):
        write_head(tmp_path / case / "val", "case", suffix, affine)
        task = task_for(tmp_path / case, "VOLUMES.INTENSITY_WINDOW", "[-500,900]")
        task.build_dataset("val", tmp_path / "cache")
        said.append(task.signature())
    assert said[0] == said[1] == said[2]
    assert said[0]["orientation"] == "RAS" and said[0]["landmarks"] == ["chin", "nose"]
    assert said[0]["spacing_mm"] == [0.7, 0.703, 0.938] and said[0]["intensity_window"] == [-500.0, 900.0]
