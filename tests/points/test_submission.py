"""The rules of ScanNet's benchmark: what a submission may look like, and what of it is refused."""

import zipfile

import numpy as np
import pytest

from paddlevit_dist.points.data.samples import SceneSamples
from paddlevit_dist.points.data.scannet_classes import CLASS_NAMES
from paddlevit_dist.points.instances.metrics import Prediction
from paddlevit_dist.points.instances.writer import InstanceWriter
from paddlevit_dist.points.segmentation.task import ClassWriter
from paddlevit_dist.points.submission import INSTANCES, SEMANTIC, Files, check, expected_scenes, pack
from paddlevit_dist.runtime.errors import UserError

from .raw_scenes import write_scannet
from .test_semantic import scene

SCENES = {"scene0707_00": 5, "scene0708_00": 3}


def write(folder, contents):
    for name, content in contents.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    return folder


@pytest.fixture
def semantic(tmp_path):
    return write(tmp_path, {"scene0707_00.txt": "1\n2\n39\n28\n36\n", "scene0708_00.txt": "24\n33\n34"})


@pytest.fixture
def instances(tmp_path):
    return write(
        tmp_path,
        {
            "scene0707_00.txt": "masks/a.txt 5 0.9812\nmasks/b.txt 39 1e-3\n",
            "scene0708_00.txt": "",  # nothing was found in it
            "masks/a.txt": "1\n0\n0\n1\n0\n",
            "masks/b.txt": "0\n1\n1\n0\n0",
        },
    )


def problems(folder, kind=None):
    return check(Files(str(folder)), SCENES, kind).problems


def test_valid_submissions_have_no_problems(semantic, tmp_path_factory):
    found = check(Files(str(semantic)), SCENES)
    assert (found.kind, found.problems, found.others) == (SEMANTIC, [], [])
    assert found.packed == ["scene0707_00.txt", "scene0708_00.txt"]


def test_valid_instances_have_no_problems(instances):
    write(instances, {"scene0707_00.png": "a picture"})
    found = check(Files(str(instances)), SCENES)
    assert (found.kind, found.problems, found.num_instances) == (INSTANCES, [], 2)
    assert sorted(found.packed) == ["masks/a.txt", "masks/b.txt", "scene0707_00.txt", "scene0708_00.txt"]
    assert found.others == ["scene0707_00.png"]


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (None, "scene0707_00.txt is missing"),
        ("1\n2\n39\n28\n", "scene0707_00.txt has 4 lines, but the scene has 5 vertices"),
        ("1\n2\n39\n28\n36\n\n", "has 6 lines"),
        ("1\n2\n0\n28\n36\n", "line 3: '0' is no class of the benchmark (1, 2, 3,"),
        ("1\n2\n13\n28\n36\n", "line 3: '13' is no class"),
        ("1.0\n2\n39\n28\n36\n", "line 1: '1.0' is no class"),
        ("1 1\n2\n39\n28\n36\n", "line 1: '1 1' is no class"),
        ("1\n" * 5000, "more than 1,064 bytes"),
    ],
)
def test_a_class_for_every_vertex(semantic, content, complaint):
    (semantic / "scene0707_00.txt").unlink()
    if content is not None:
        (semantic / "scene0707_00.txt").write_text(content)
    assert complaint in problems(semantic, SEMANTIC)[0]


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("masks/a.txt 5", "line 1: expected a mask file, a class number and a confidence"),
        ("masks/a.txt 1 0.5", "'1' is no class with instances (3, 4,"),  # walls have none
        ("masks/a.txt chair 0.5", "'chair' is no class"),
        ("masks/a.txt 5 nan", "the confidence is 'nan', expected a finite number"),
        ("masks/a.txt 5 high", "the confidence is 'high'"),
        ("/masks/a.txt 5 0.5", "is no path relative to the submission"),
        ("../masks/a.txt 5 0.5", "is no path relative"),
        ("masks/./a.txt 5 0.5", "is no path relative"),
        ("masks/c.txt 5 0.5", "there is no file 'masks/c.txt'"),
        ("masks/a.txt 5 0.5\nmasks/a.txt 5 0.4", "line 2: 'masks/a.txt' is the mask of another line"),
    ],
)
def test_an_index_names_masks_classes_and_confidences(instances, line, complaint):
    (instances / "scene0707_00.txt").write_text(line + "\n")
    found = problems(instances, INSTANCES)
    assert len(found) == 1 and complaint in found[0]


@pytest.mark.parametrize(
    ("mask", "complaint"),
    [
        ("1\n0\n0\n1\n", "has 4 lines, but the scene has 5 vertices"),
        ("1\n0\n2\n1\n0\n", "holds '2', expected 0 or 1"),
        ("1\n0\n-1\n1\n0\n", "holds '-1'"),
        ("0\n0\n0\n0\n0\n", "marks no vertex"),
        ("1 0 0 1 0", "has 1 lines, but"),
    ],
)
def test_a_mask_has_a_0_or_1_for_every_vertex(instances, mask, complaint):
    (instances / "masks/a.txt").write_text(mask)
    assert complaint in problems(instances)[0]


def test_what_is_packed_is_valid_and_nothing_else(instances, tmp_path_factory):
    write(instances, {"scene0707_00.png": "a picture"})
    target = tmp_path_factory.mktemp("zip") / "all.zip"
    files = Files(str(instances))
    pack(files, check(files, SCENES).packed, target)
    packed = check(Files(str(target)), SCENES)
    assert (packed.problems, packed.others, packed.num_instances) == ([], [], 2)
    with zipfile.ZipFile(target) as archive:
        assert archive.read("masks/a.txt") == b"1\n0\n0\n1\n0\n"


@pytest.mark.parametrize("name", ["predictions/scene0708_00.txt", "notes.txt"])
def test_an_archive_holds_the_submission_in_its_root(semantic, name, tmp_path_factory):
    target = tmp_path_factory.mktemp("zip") / "all.zip"
    with zipfile.ZipFile(target, "w") as archive:
        archive.writestr("scene0707_00.txt", "1\n2\n39\n28\n36\n")
        archive.writestr("scene0708_00.txt" if name == "notes.txt" else name, "24\n33\n34\n")
        if name == "notes.txt":
            archive.writestr(name, "of mine")
    found = problems(target)
    assert f"the archive holds {name}" in found[-1]
    assert name == "notes.txt" or f"scene0708_00.txt is missing in the root; there is {name}" in found[0]


def test_the_writers_files_are_valid(tmp_path):
    generator = np.random.default_rng(0)
    names, samples = ("scene0707_00", "scene0708_00"), SceneSamples([], (), "first")
    writers = {
        SEMANTIC: ClassWriter(tmp_path / SEMANTIC, samples, CLASS_NAMES),
        INSTANCES: InstanceWriter(tmp_path / INSTANCES, samples, CLASS_NAMES),
    }
    for kind, writer in writers.items():
        (tmp_path / kind).mkdir()
        for name, points in zip(names, (500, 300)):
            classes = generator.integers(0, 20, points)
            found = [Prediction(4, 0.5, np.arange(9)), Prediction(19, 0.25, np.arange(90))]
            writer.write_scene(scene(points, name=name), classes if kind == SEMANTIC else (classes, found))
        found = check(Files(str(tmp_path / kind)), {"scene0707_00": 500, "scene0708_00": 300})
        assert (found.kind, found.problems) == (kind, [])
        assert not list((tmp_path / kind).glob("*truth*"))


def test_the_scenes_are_those_of_the_test_folder_or_of_a_list(tmp_path):
    write_scannet(tmp_path / "scans" / "scene0000_00", "scene0000_00", points=40)
    for number, name in enumerate(("scene0707_00", "scene0708_00")):
        write_scannet(tmp_path / "scans_test" / name, name, points=50 + number, labelled=False)
    assert expected_scenes(str(tmp_path)) == {"scene0707_00": 50, "scene0708_00": 51}
    (tmp_path / "scannetv2_test.txt").write_text("scene0708_00\n")
    assert expected_scenes(str(tmp_path)) == {"scene0708_00": 51}
    (tmp_path / "mine.txt").write_text("scene0000_00\n")
    assert expected_scenes(str(tmp_path), listed=str(tmp_path / "mine.txt")) == {"scene0000_00": 40}
    (tmp_path / "mine.txt").write_text("scene0000_00\nscene0001_00\n")
    with pytest.raises(UserError, match="scene0001_00 is not in .*; 1 of 2 are missing"):
        expected_scenes(str(tmp_path), listed=str(tmp_path / "mine.txt"))


def test_neither_folder_nor_archive_is_refused(tmp_path):
    (tmp_path / "a.zip").write_bytes(b"no archive")
    for path in (tmp_path / "a.zip", tmp_path / "missing"):
        with pytest.raises(UserError, match="is neither a folder nor a zip archive"):
            Files(str(path))
