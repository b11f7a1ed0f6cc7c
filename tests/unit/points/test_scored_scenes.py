"""``evaluate scenes``: predictions in ScanNet's format score as the metrics of an evaluation, and as golden files."""

import json
import zipfile
from collections import Counter

import numpy as np
import paddle
import pytest
from support.files.raw_scenes import write_scannet
from support.refusals import refusal_of
from support.samples.remembered_rooms import remembered_rooms  # noqa: F401

from paddlevit_dist import UserError
from paddlevit_dist.core import settings
from paddlevit_dist.core.registry.lookup import resolve
from paddlevit_dist.extensions.compare.pairs import compare_tables
from paddlevit_dist.extensions.compare.tables import read_table
from paddlevit_dist.points import evaluate_command as evaluate_scenes
from paddlevit_dist.points.data.scannet_classes import (
    CLASS_NAMES,
    NYU40_NUMBERS,
    load_scannet200_classes,
    submitted_numbers,
)
from paddlevit_dist.points.data.scene import Scene
from paddlevit_dist.points.instances.matching import InstancePrediction
from paddlevit_dist.points.instances.metrics import InstanceMetrics
from paddlevit_dist.points.scored_scenes import SceneGroundTruth, _read_masks, score
from paddlevit_dist.points.segmentation.metrics import SemanticMetrics
from paddlevit_dist.points.submission import INSTANCES, SEMANTIC, SubmissionFiles, find_kind

NUMBER = 5


@pytest.fixture(scope="module")
def recipe(tmp_path_factory):
    """The flag of one with few rooms, whose tables are no instances."""
    file = tmp_path_factory.mktemp("recipe") / "rooms.yaml"
    rooms = (
        f"POINTS: {{ROOMS: {{VAL: {NUMBER}, SPACING_M: 0.1}}, INSTANCES: {{STUFF_CLASSES: [wall, floor, table]}}}}\n"
    )
    data = "DATA: {DATASET: remembered_rooms}\n"
    file.write_text(f"BASE: {settings.recipe_folder() / 'pointgroup_synthetic_rooms.yaml'}\n{data}{rooms}")
    return f"-cfg={file}"


@pytest.fixture(scope="module")
def scenes(recipe):
    rooms = resolve("dataset", "remembered_rooms").open(settings.load([recipe]).values, "val", None)
    return [rooms.read(index) for index in range(len(rooms))], rooms


@pytest.fixture(scope="module")
def found(scenes, tmp_path_factory):
    """Folders of predictions, and what they are: classes of the points, and instances, of each scene."""
    rng, folder = np.random.default_rng(0), tmp_path_factory.mktemp("found")
    (folder / "instances" / "predicted_masks").mkdir(parents=True)
    (folder / "semantic").mkdir()
    labels, instances = [], []
    for scene in scenes[0]:
        labels.append(np.where(rng.random(len(scene.xyz)) < 0.8, np.maximum(scene.semantic, 0), rng.integers(0, 20)))
        numbers = np.array(NYU40_NUMBERS)[labels[-1]]
        (folder / "semantic" / f"{scene.name}.txt").write_text("\n".join(map(str, numbers)))
        lines, own = [], []
        for number in np.unique(scene.instance[scene.instance >= 0]):
            points = np.flatnonzero((scene.instance == number) & (rng.random(len(scene.xyz)) < rng.uniform(0.3, 1)))
            label, mask = int(scene.semantic[scene.instance == number][0]), f"predicted_masks/{scene.name}_{number}.txt"
            own.append(InstancePrediction(label, float(f"{rng.random():.4f}"), points))
            marks = np.zeros(len(scene.xyz), int)
            marks[points] = 1
            (folder / "instances" / mask).write_text("\n".join(map(str, marks)) + "\n")
            lines.append(f"{mask} {NYU40_NUMBERS[label]} {own[-1].confidence:.4f}\n")
        (folder / "instances" / f"{scene.name}.txt").write_text("".join(lines))
        instances.append(own)
    return folder, labels, instances


def test_files_have_a_row_for_each_point_of_the_source(tmp_path, capsys):
    """Also for those that the scene has no point for; what they contain does not count."""
    scene = Scene(
        np.zeros((4, 3), np.float32), np.zeros((4, 3), np.uint8), np.array([0, 1, 1, -100], np.int16),
        np.array([-100, 0, 0, -100], np.int16), "a", skipped_rows=(1, 5),
    )  # fmt: skip
    truth = SceneGroundTruth(["a"], iter([scene]), ["a"], ["road", "car"], lambda: [1], "here")
    (tmp_path / "a.txt").write_text("0\n-100\n1\n0\n1\n77\n")
    report = score(str(tmp_path), truth)
    right, true, found = report.arrays["statistics"][0]
    assert right.tolist() == [1, 1] and true.tolist() == [1, 2] and found.tolist() == [2, 1]
    assert report.notices == []
    (tmp_path / "a.txt").write_text("0\n-100\n77\n0\n1\n77\n")  # of no class, which is wrong
    report = score(str(tmp_path), truth._replace(read=iter([scene])), SEMANTIC)
    assert report.arrays["statistics"][0].tolist() == [[1, 0], [1, 2], [2, 0]] and len(report.notices) == 1
    (tmp_path / "hall (1) mask.txt").write_text("0\n1\n1\n1\n0\n1\n")
    (tmp_path / "a.txt").write_text("hall (1) mask.txt 1 0.5\n")
    masks = list(_read_masks(SubmissionFiles(str(tmp_path)), "a.txt", scene, {1: 1}, Counter()))
    assert [points.tolist() for _, _, points in masks] == [[1, 2]]
    (tmp_path / "a.txt").write_text("0\n1\n0\n1\n")
    with pytest.raises(UserError, match="has 4 lines, but the scene has 6 vertices"):
        score(str(tmp_path), truth._replace(read=iter([scene])), "semantic")


def evaluate(capsys, *words):
    evaluate_scenes.run([*map(str, words), "-json"])
    captured = capsys.readouterr()
    return json.loads(captured.out), captured.err


def test_classes_score_as_in_an_evaluation(scenes, found, capsys, recipe):
    folder, labels, _ = found
    metrics = SemanticMetrics(list(scenes[1].class_names))
    for scene, own in zip(scenes[0], labels):
        metrics.update(paddle.to_tensor(own), paddle.to_tensor(scene.semantic.astype("int64")))
    values = metrics.compute(metrics.state)
    said, told = evaluate(capsys, folder / "semantic", recipe)
    assert said["scores"] == pytest.approx({name: values[name] for name in said["scores"]}, abs=1e-12)
    assert {name for name in values if name.startswith("IoU")} < set(said["scores"])
    assert told.startswith("note: the interval is rough: 5 scenes") and told.count("\n") == 1


def test_instances_score_as_in_an_evaluation_and_compare_with_it(scenes, found, capsys, tmp_path, recipe):
    folder, _, instances = found
    names = list(scenes[1].class_names)
    metrics = InstanceMetrics(names, [n for n in range(2, 20) if names[n] != "table"])
    for scene, own in zip(scenes[0], instances):
        metrics.update_instances(scene.semantic, scene.instance, own)
        labels = paddle.to_tensor(scene.semantic.astype("int64"))
        metrics.update(labels.clip(0), labels, paddle.zeros([1], dtype="float64"))
    values = metrics.compute(metrics.state)
    said, _ = evaluate(capsys, folder / "instances", recipe, f"-output={tmp_path}")
    assert said["scores"] == pytest.approx({name: values[name] for name in said["scores"]}, abs=1e-12)
    assert 0.1 < said["scores"]["AP"] < said["scores"]["AP25"] and "mIoU" not in said["scores"]
    theirs = read_table(str(tmp_path))
    ours = theirs._replace(arrays=dict(metrics.to_sample_table(metrics.per_sample()).arrays))
    row = compare_tables(ours, theirs)
    assert row["difference"]["value"] == 0 and row["of_first"]["value"] == pytest.approx(values["AP"], abs=1e-5)


def test_scenes_of_one_place_are_drawn_together(scenes, found, capsys, tmp_path, recipe):
    names = list(map(scenes[1].identity, range(NUMBER)))
    places = tmp_path / "places.csv"
    places.write_text("scene,place\n" + "".join(f'"{name}",{number // 2}\n' for number, name in enumerate(names)))
    alone, _ = evaluate(capsys, recipe, found[0] / "semantic")
    grouped, said = evaluate(capsys, recipe, found[0] / "semantic", f"-group={places}")
    assert grouped["scores"] == alone["scores"] and grouped["intervals"]["mIoU"] != alone["intervals"]["mIoU"]
    assert grouped["groups"]["number"] == 3 and "3 groups" in said
    with pytest.raises(UserError, match=f"1 of {NUMBER} samples have no group in .*places.csv, such as "):
        places.write_text("scene,place\n" + "".join(f'"{name}",a\n' for name in names[:-1]))
        evaluate(capsys, recipe, found[0] / "semantic", f"-group={places}")


def test_files_that_are_all_empty_are_an_error_and_nothing_found_is_a_note(found, capsys, tmp_path, recipe):
    for file in (found[0] / "instances").glob("*.txt"):
        (tmp_path / file.name).write_text("")
    with pytest.raises(UserError, match="the files of all 5 scenes are empty: .*add -kind=instances"):
        evaluate(capsys, tmp_path, recipe)
    said, told = evaluate(capsys, tmp_path, recipe, "-kind=instances")
    assert said["scores"]["AP"] == 0 and "no instance in any file: every AP is 0\n" in told


def test_the_smallest_instance_that_counts_is_a_key_and_without_any_there_is_no_score(scenes, found, capsys, recipe):
    others = [-100, *(CLASS_NAMES.index(name) for name in ("wall", "floor", "table"))]
    sizes = [np.bincount(scene.instance[~np.isin(scene.semantic, others)]).max() for scene in scenes[0]]
    key, folder = "POINTS.INSTANCES.AP_MIN_POINTS", found[0] / "instances"
    said, _ = evaluate(capsys, recipe, folder, key, "20")
    assert "instances of fewer than 20 vertices do not count, true or predicted" in said["protocol"]
    metrics = InstanceMetrics(list(CLASS_NAMES), [n for n in range(20) if n not in others], 20)
    for scene, predictions in zip(scenes[0], found[2]):
        metrics.update_instances(scene.semantic, scene.instance, predictions)
        metrics.update(*[paddle.to_tensor(scene.semantic.astype("int64").clip(0))] * 2, None)
    assert said["scores"]["AP"] == pytest.approx(metrics.compute(metrics.state)["AP"], abs=1e-12)
    assert evaluate(capsys, recipe, folder, key, str(max(sizes)))[0]["scores"]["AP"] == 0
    said, told = evaluate(capsys, recipe, folder, key, str(max(sizes) + 1))
    assert not [name for name in said["scores"] if name.startswith("AP")] and f"AP is not defined: set {key} l" in told


def test_an_archive_is_read_as_well(found, capsys, tmp_path, recipe):
    folder = found[0] / "semantic"
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        for file in folder.iterdir():
            archive.write(file, file.name)
    assert evaluate(capsys, tmp_path / "all.zip", recipe)[0]["scores"] == evaluate(capsys, folder, recipe)[0]["scores"]


def test_the_download_itself_is_the_truth(tmp_path, capsys):
    for split, name in (("train", "scene0000_00"), ("val", "scene0001_00"), ("test", "scene0707_00")):
        write_scannet(tmp_path / "raw" / name, name)
        (tmp_path / "raw" / f"scannetv2_{split}.txt").write_text(f"{name}\n")
    next((tmp_path / "raw" / "scene0707_00").glob("*.labels.ply")).unlink()  # the benchmark keeps them
    from paddlevit_dist.points.prepare.scannet import ScanNetReader

    reader = ScanNetReader()
    (source,) = reader.sources(str(tmp_path / "raw"), {})["val"]
    scene = reader.read(source)
    (tmp_path / "found").mkdir()
    known = scene.semantic >= 0
    numbers = np.where(known, np.array(NYU40_NUMBERS)[np.maximum(scene.semantic, 0)], 1)
    numbers[np.flatnonzero(known)[0]] = 13  # NYU's "blinds", which the benchmark does not have
    (tmp_path / "found" / "scene0001_00.txt").write_text("\n".join(map(str, numbers)) + "\n")
    said, told = evaluate(capsys, tmp_path / "raw", tmp_path / "found")
    assert said["scores"]["accuracy"] == pytest.approx(1 - 1 / known.sum())
    assert "1 vertices have a number without a class: [13] (ScanNet's class numbers): counted as wrong" in told
    message = refusal_of(
        evaluate_scenes.run, [str(tmp_path / "found"), "-cfg=pointgroup_synthetic_rooms", "-list=a.txt"]
    )
    assert message == ("-list is for ScanNet's download: remove it; -split selects a list of prepared scenes")
    for split in ("test", "mine"):
        refusal = f"^{tmp_path / 'raw'} has no labeled scenes of {split}; it has train, val, test$"
        with pytest.raises(UserError, match=refusal):
            evaluate_scenes.run([str(tmp_path / "raw"), str(tmp_path / "found"), f"-split={split}"])


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("val_00003.txt", None, "1 of 5 scenes of .* have no file, such as val_00003.txt"),
        ("val_00003.txt", "1\n2\n", "val_00003.txt has 2 lines, but the scene has"),
        ("val_00003.txt", "1.5\n" * 5, "has 5 lines"),
    ],
)
def test_classes_that_cannot_be_scored(found, tmp_path, name, content, complaint, recipe):
    for file in (found[0] / "semantic").iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / name).unlink()
    if content is not None:
        (tmp_path / name).write_text(content)
    with pytest.raises(UserError, match=complaint):
        evaluate_scenes.run([str(tmp_path), recipe])


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("predicted_masks/none.txt 5 0.5", "line 1: there is no file 'predicted_masks/none.txt'"),
        ("predicted_masks/a.txt chair 0.5", "expected a mask file, the number of a class and a confidence"),
        ("predicted_masks/a.txt 5 nan", "expected a mask file"),
        ("predicted_masks/a.txt 5 0.5", "predicted_masks/a.txt has 2 lines, but the scene has"),
    ],
)
def test_instances_that_cannot_be_scored(scenes, tmp_path, line, complaint, recipe):
    (tmp_path / "predicted_masks").mkdir()
    (tmp_path / "predicted_masks" / "a.txt").write_text("0\n1\n")
    for scene in scenes[0]:
        (tmp_path / f"{scene.name}.txt").write_text(f"{line}\n")
    with pytest.raises(UserError, match=complaint):
        evaluate_scenes.run([str(tmp_path), recipe])


def test_kinds_of_files_and_what_is_none(tmp_path):
    found = tmp_path / "found"
    (found / "b").mkdir(parents=True)
    for name, text in {"a.txt": "", "b/c.txt": "4\n5\n", "d.txt": "b/c.txt 4 0.5\n", "e.txt": "x" * 9}.items():
        (found / name).write_text(text)
    files = SubmissionFiles(str(found))
    assert files.names == ["a.txt", "b/c.txt", "d.txt", "e.txt"] and files.read("b/c.txt", 9) == b"4\n5\n"
    assert find_kind(files, ["none.txt", "a.txt", "b/c.txt", "d.txt"]) == SEMANTIC
    assert find_kind(files, ["a.txt", "d.txt", "b/c.txt"]) == INSTANCES
    assert find_kind(files, ["none.txt"]) == find_kind(files, ["a.txt", "none.txt"]) == INSTANCES
    with pytest.raises(UserError, match="the files of all 1 scenes are empty: there is nothing to score; if no "):
        find_kind(files, ["a.txt"])
    with pytest.raises(UserError, match="^.* has no file of any of the scenes, such as scene0707_00.txt: give"):
        find_kind(files, [])
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        for name in ("e.txt", "b/c.txt", "a.txt"):
            archive.write(found / name, name)
    files = SubmissionFiles(str(tmp_path / "all.zip"))
    assert files.names == ["a.txt", "b/c.txt", "e.txt"] and files.read("b/c.txt", 9) == b"4\n5\n"
    (tmp_path / "no.zip").write_bytes(b"text")
    for name, reason in (("no.zip", "File is not a zip file"), ("none", "No such file or directory")):
        with pytest.raises(UserError, match=f"^{tmp_path / name} is neither a folder nor a zip archive: {reason}$"):
            SubmissionFiles(str(tmp_path / name))


def test_truth_without_a_class_is_refused_for_both_kinds(tmp_path):
    scene = Scene(np.zeros((3, 3)), np.zeros((3, 3), np.uint8), np.full(3, -100), np.full(3, -100), "a")
    truth = SceneGroundTruth(["a"], [scene], ["a"], ["road", "car"], lambda: [1], "rooms")
    for kind, text in ((SEMANTIC, "0\n1\n1\n"), (INSTANCES, "")):
        (tmp_path / "a.txt").write_text(text)
        message = refusal_of(score, str(tmp_path), truth, kind)
        assert message == "rooms: no vertex has a class, so there is nothing to compare with"


@pytest.mark.parametrize("is_archive", [False, True])
def test_files_that_are_far_too_long_or_cannot_be_read_are_told(tmp_path, is_archive):
    scene = Scene(np.zeros((3, 3)), np.zeros((3, 3), np.uint8), np.array([0, 1, 0]), np.full(3, -100), "a")
    truth = SceneGroundTruth(["a"], [scene], ["a"], ["road", "car"], lambda: [1], "rooms")
    files = {"a.txt": b"1\n" * 600, "b.txt": b"m/a.txt 1 0.5\n", "m/a.txt": b"1\n" * 600}
    place = tmp_path / "found.zip" if is_archive else tmp_path / "found"
    if is_archive:
        with zipfile.ZipFile(place, "w") as archive:
            for name, content in files.items():
                archive.writestr(name, content)
    else:
        (place / "m").mkdir(parents=True)
        for name, content in files.items():
            (place / name).write_bytes(content)
    hint = "" if is_archive else ", far more than such files need"
    line = refusal_of(score, str(place), truth, SEMANTIC)
    message = f"{place}: a.txt: it has more than 1,072 bytes{hint}; expected a number for each of 3 vertices"
    assert line == message
    both = truth._replace(names=["b"], read=iter([scene._replace(name="b")]))
    assert refusal_of(score, str(place), both, INSTANCES) == f"{place}: m/a.txt: it has more than 1,036 bytes{hint}"
    content = bytearray(place.read_bytes()) if is_archive else b""
    if is_archive:  # other bytes than its checksum says
        start = content.index(b"m/a.txt 1 0.5")
        content[start + 8] = ord("0")
        place.write_bytes(bytes(content))
    else:
        (place / "b.txt").unlink()
        (place / "b.txt").symlink_to("b.txt")
    refusal = refusal_of(score, str(place), both._replace(read=iter([scene._replace(name="b")])), INSTANCES)
    reason = "Bad CRC-32 for file 'b.txt'" if is_archive else "Too many levels of symbolic links"
    assert refusal == f"{place}: b.txt: it cannot be read: {reason}"


def test_a_file_of_an_archive_that_cannot_be_unpacked_is_told(tmp_path):
    scene = Scene(np.zeros((3, 3)), np.zeros((3, 3), np.uint8), np.array([0, 1, 0]), np.full(3, -100), "a")
    truth = SceneGroundTruth(["a"], [scene], ["a"], ["road", "car"], lambda: [1], "rooms")
    place = tmp_path / "found.zip"
    with zipfile.ZipFile(place, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.txt", "1\n0\n1\n")
    content = bytearray(place.read_bytes())
    content[content.index(b"a.txt") + 5] = 0xFF  # the first byte of the packed content
    place.write_bytes(bytes(content))
    line = refusal_of(score, str(place), truth, SEMANTIC)
    reason = "Error -3 while decompressing data: invalid block type"
    message = f"{place}: a.txt: it cannot be read: {reason}; expected a number for each of 3 vertices"
    assert line == message


def test_unknown_numbers_and_files_are_counted(tmp_path):
    scene = Scene(np.zeros((3, 3), np.float32), np.zeros((3, 3), np.uint8), np.array([0, 1, 0]), np.full(3, -100), "a")
    truth = SceneGroundTruth(["a"], [scene], ["a"], list(CLASS_NAMES), lambda: [0, 1], "rooms")
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "a.txt").write_text("1\n0\n1\n")
    (tmp_path / "a.txt").write_text("m/a.txt 3 0.5\nm/a.txt 13 0.9\nm/a.txt 31 0.9\nm/a.txt 13 0.1\n")
    (tmp_path / "z.txt").write_text("1\n")
    (tmp_path / "notes.md").write_text("mine\n")
    report = score(str(tmp_path), truth, INSTANCES)
    assert "rooms: no true instance has at least 100 vertices, so AP is not defined" in report.notices[0]
    assert report.notices[1:] == [
        f"{tmp_path}: 3 instances have a number without a class: [13, 31] (ScanNet's class numbers): ignored",
        f"{tmp_path}: 1 file belongs to no scene of rooms, such as z.txt: ignored",
    ]
    (tmp_path / "b.txt").write_text("m/a.txt 3 0.5\nm/a.txt 4 0.4\n")
    both = truth._replace(names=["a", "b"], read=iter([scene, scene._replace(name="b")]), identities=["a", "b"])
    assert score(str(tmp_path), both, INSTANCES).counted == f"3 instances in 2 scenes: {tmp_path}, truth of rooms"
    (tmp_path / "a.txt").write_text("013\n2\n13\n")
    (tmp_path / "b.txt").write_text("1\n13\n-100\n")
    report = score(str(tmp_path), both._replace(read=iter([scene, scene._replace(name="b")])), SEMANTIC)
    message = (
        f"{tmp_path}: 4 vertices have a number without a class: [-100, 13] (ScanNet's class numbers): counted as wrong"
    )
    assert report.notices[0] == message and report.counted.startswith("2 scenes of 20 classes: ")
    assert report.arrays["statistics"][:, :, :2].tolist() == [[[0, 1], [2, 1], [0, 1]], [[1, 0], [2, 1], [1, 0]]]
    (tmp_path / "m" / "b.txt").write_text("1\n2\n0\n")
    (tmp_path / "a.txt").write_text("m/b.txt 3 0.5\n")
    with pytest.raises(UserError, match="m/b.txt has something other than 0 and 1; expected a 0 or 1 for each vertex$"):
        score(str(tmp_path), truth, INSTANCES)
    (tmp_path / "a.txt").write_text("1\n2\nchair\n")
    with pytest.raises(UserError, match=r"a.txt, line 3: .*chair.*: expected the number of a class$"):
        score(str(tmp_path), truth, SEMANTIC)
    found, description = submitted_numbers(tuple(load_scannet200_classes()))
    assert found.dtype == np.int64 and found.tolist() == list(load_scannet200_classes().values())
    assert len(found) == 200 and description == "ScanNet200's class numbers"
    numbers, description = submitted_numbers(["x", "y"])
    assert numbers.tolist() == [0, 1] and description == "class numbers"


@pytest.mark.parametrize(("kind", "lines"), [(SEMANTIC, "50\n13\n50\n"), (INSTANCES, "m.txt 13 0.5\nm.txt 50 0.5\n")])
def test_results_without_any_class_of_the_truth_have_no_score(tmp_path, kind, lines):
    scene = Scene(np.zeros((3, 3), np.float32), np.zeros((3, 3), np.uint8), np.array([0, 1, 0]), np.full(3, -100), "a")
    truth = SceneGroundTruth(["a"], [scene], ["a"], ["wall", "floor"], lambda: [0, 1], "rooms")
    (tmp_path / "m.txt").write_text("1\n0\n1\n")
    (tmp_path / "a.txt").write_text(lines)
    said = refusal_of(score, str(tmp_path), truth, kind)
    assert said == f"{tmp_path}: no class of the results is one of the truth: they have 13, 50, it has 0, 1"
