"""Tutorials that are whole sessions: their files are written, their commands and programs run, as they stand."""

import csv
import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml
from PIL import Image
from support.processes import ROOT, run_command

from paddlevit_dist.core import settings
from paddlevit_dist.core.registry.lookup import resolve
from paddlevit_dist.points.data.scannet_classes import submitted_numbers

from .not_run import NOT_RUN
from .reading import make_commands, make_text
from .test_pages import write_command

CUSTOM_LOOP = "docs/guides/custom_training_loop.md"
SCORING = "docs/explanation/scoring_and_confidence_intervals.md"
_FILE_OR_BLOCK = re.compile(
    r"(?:`([\w./]+\.(?:py|yaml|sh))`[^`\n]*:\n\n)?```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL
)


class Session:
    """A folder of a reader's own, with what an installed package would give."""

    def __init__(self, folder: Path, page: str) -> None:
        self.folder = folder
        self.programs = []
        for name, language, content in _FILE_OR_BLOCK.findall(make_text(page)):
            if name and language != "bash":
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / name).write_text(content, encoding="utf-8")
            elif language == "python":
                self.programs.append(content)
        self.commands = write_command(folder)

    def type(self, command: str) -> str:
        path = f"{self.commands}:{Path(sys.executable).parent}:/usr/bin:/bin"
        ended = run_command(["bash", "-c", command], folder=self.folder, PATH=path)
        assert ended.code == 0, f"{command}\n{ended.out[-3000:]}\n{ended.err[-3000:]}"
        assert "Traceback" not in ended.err
        return ended.out

    def run(self, page: str) -> list:
        """What each command, then each program without a name, prints."""
        printed = [self.type(command) for command in make_commands(page) if command not in NOT_RUN]
        for number, program in enumerate(self.programs):
            (self.folder / f"program_{number}.py").write_text(program, encoding="utf-8")
            printed.append(self.type(f"python program_{number}.py"))
        return printed


def test_from_a_folder_of_images_to_a_table_of_new_ones(tmp_path):
    page = "docs/tutorials/quickstart_custom_images.md"
    printed = Session(tmp_path, page).run(page)
    scores = [float(top1) for out in printed for top1 in re.findall(r"^top-1 ([\d.]+)", out, re.M)]
    assert scores[0] > 40  # of four classes
    with open(tmp_path / "found" / "predictions.csv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["input"] for row in rows] == [f"new/{index:03d}.png" for index in range(12)]
    assert {row["class"] for row in rows} <= {"circle", "square", "star", "triangle"}
    said = [line.split()[:2] for line in printed[-1].splitlines() if line.startswith("new/")]
    assert said == [[row["input"], row["class"]] for row in rows]  # what Predictor returns is what the command writes
    assert (tmp_path / "output" / "look" / "data.png").is_file()
    for page in (tmp_path / "both.html", tmp_path / "output" / "shapes" / "report.html"):
        assert "<html" in page.read_text(encoding="utf-8")[:500]


def test_from_a_file_of_boxes_to_boxes_on_new_images(tmp_path):
    page = "docs/tutorials/detection.md"
    printed = Session(tmp_path, page).run(page)
    scores = [
        value for out in printed for value in re.findall(r"^AP ([\d.]+) (?:\[[\d., ]+\] )?AP50", out, re.MULTILINE)
    ]
    assert len(scores) == 7  # of a training's two parts, evaluated; of shapes, fine-tuned from them, evaluated, as ONNX
    again = next(out for out in printed if "IoU=0.50:0.95" in out)
    assert f"{float(scores[2]):.3f}" in again
    tuned, evaluated, exported = map(float, scores[4:])
    assert tuned == evaluated == pytest.approx(exported, abs=1e-3)
    assert re.search(r"^[\d.]+ images/s from pixels to boxes", "\n".join(printed), re.MULTILINE)
    assert (tmp_path / "exported" / "fast.onnx").is_file() and (tmp_path / "found_fast" / "results.json").is_file()
    results = json.loads((tmp_path / "found" / "results.json").read_text())
    assert {entry["category_id"] for entry in results} <= {3, 7} and {entry["image_id"] for entry in results} == {
        0,
        1,
        2,
    }
    assert sorted(path.name for path in (tmp_path / "found" / "pictures").iterdir()) == ["0.jpg", "1.jpg", "2.jpg"]
    with open(tmp_path / "found" / "predictions.csv", encoding="utf-8", newline="") as file:
        columns = next(csv.reader(file))
    assert ",".join(columns) in make_text(page)
    assert (tmp_path / "exported" / "things.about.yaml").is_file() and (tmp_path / "both.html").is_file()
    said = next(out for out in printed if "boxes:" in out)
    shown = re.search(r"^  train 48 .*$", make_text(page), re.MULTILINE)[0]
    assert shown in said


def test_from_a_table_of_points_to_points_on_new_images(tmp_path):
    page = "docs/tutorials/keypoints.md"
    printed = Session(tmp_path, page).run(page)
    (counted, trained, evaluated, scored, *_) = printed[1:]
    assert re.search(r"^train: keypoints of object: 3 points, no .*$", make_text(page), re.MULTILINE)[0] in counted
    lines = [re.search(r"^PCK ([\d.]+)% .* mre ([\d.]+) px", out, re.MULTILINE) for out in (trained, evaluated)]
    pck, error = map(float, lines[0].groups())
    assert lines[1].groups() == lines[0].groups() and pck > 60 and error < 1.5
    assert re.search(rf"^PCK {pck:.2f} \[", scored, re.MULTILINE) and f"mre_px {error}" in scored
    with open(tmp_path / "points.csv", encoding="utf-8", newline="") as file:
        errors = [float(row["mre_px"]) for row in csv.DictReader(file)]
    assert len(errors) == 50 and sum(errors) / 50 == pytest.approx(error, abs=1e-4)
    with open(tmp_path / "found" / "predictions.csv", encoding="utf-8", newline="") as file:
        columns, *rows = csv.reader(file)
    assert ",".join(columns) in make_text(page) and len(rows) == 6
    content = json.loads(next((tmp_path / "labels" / "dataset").rglob("*.json")).read_text())
    assert content["categories"][0]["keypoints"] == ["center", "tip", "zero"] and len(content["annotations"]) == 6


def test_from_numbers_of_pixels_to_segments_of_new_images(tmp_path):
    page = "docs/tutorials/panoptic.md"
    (counted, trained, evaluated, scored, *_) = Session(tmp_path, page).run(page)[1:]
    assert re.search(r"^segments of train, in all 160 images: .*$", make_text(page), re.MULTILINE)[0] in counted
    lines = [re.search(r"^PQ ([\d.]+) .* PQ_stuff ([\d.]+)", out, re.MULTILINE) for out in (trained, evaluated)]
    quality, of_stuff = map(float, lines[0].groups())
    assert lines[1].groups() == lines[0].groups() and quality > 0.4 and of_stuff > 0.8
    assert re.search(rf"^PQ {quality:.4f} \[", scored, re.MULTILINE)
    with open(tmp_path / "found" / "predictions.csv", encoding="utf-8", newline="") as file:
        columns, *rows = csv.reader(file)
    content = json.loads((tmp_path / "found" / "panoptic.json").read_text())
    assert ",".join(columns) in make_text(page)
    assert len(rows) == sum(len(entry["segments_info"]) for entry in content["annotations"]) >= 6


def test_a_detector_in_practice(tmp_path):
    page = "docs/guides/detection.md"
    pytest.importorskip("albumentations")
    printed = Session(tmp_path, page).run(page)
    scored = next(line for line in printed[2].splitlines() if line.startswith("AP "))
    assert "(images whole and in windows of 40 x 40 pixels that overlap by 0.3, mirrored and not, merged by" in scored
    data = yaml.safe_load((tmp_path / "output" / "labeled" / "dataset" / "data.yaml").read_text())
    assert data["names"] == {0: "circle", 1: "square", 2: "triangle"}
    (labels,) = (tmp_path / "output" / "labeled" / "dataset" / "labels" / "train").iterdir()
    boxes = len(labels.read_text().splitlines())
    assert f"1 image with {boxes} boxes of a score of at least 0.01 are in " in "\n".join(printed)
    inspected = re.findall(r"^(?:circle|square|triangle) +(\d+) ", printed[5], re.MULTILINE)
    assert len(inspected) == 3 and sum(map(int, inspected)) == boxes
    with open(tmp_path / "output" / "checked" / "eval_suspicious_labels.csv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    suspicions = [float(row["suspicion"]) for row in rows]
    assert suspicions and suspicions == sorted(suspicions, reverse=True)
    report = (tmp_path / "output" / "checked" / "report.html").read_text(encoding="utf-8")
    assert "Suspicious labels" in report and "Score thresholds" in report


def test_from_a_folder_of_label_maps_to_masks_of_new_images(tmp_path):
    page = "docs/guides/segmentation.md"
    printed = Session(tmp_path, page).run(page)
    lines = [re.findall(r"^mIoU [^\n]*\)", out, re.MULTILINE) for out in printed]
    *_, trained = lines[3]
    (scored,), (mirrored,) = lines[4:6]
    assert trained.startswith(scored) and float(scored.split()[1]) > 0.7  # as the page shows, on another machine
    shown = re.search(r"^mIoU .*$", make_text(page), re.MULTILINE)[0]
    assert scored.partition(" (")[2] == shown.partition(" (")[2] and "; also mirrored; " in mirrored
    assert re.search(r"^labels of train, .*$", make_text(page), re.MULTILINE)[0] in printed[1].splitlines()
    assert sorted(path.name for path in (tmp_path / "found" / "masks").iterdir()) == ["0.png", "1.png", "2.png"]
    assert (tmp_path / "found" / "classes.txt").read_text().split() == ["grass", "pond", "path"]
    with open(tmp_path / "found" / "predictions.csv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    said = re.findall(r"^(new/\d\.png) ([\d.]+)$", printed[-1], re.MULTILINE)  # by Predictor
    assert len(said) == 3 and said == [(row["input"], row["share pond"]) for row in rows]
    assert (tmp_path / "exported" / "fields.about.yaml").is_file() and (tmp_path / "both.html").is_file()


@pytest.fixture(scope="module")
def custom_loop(tmp_path_factory) -> tuple[Path, list]:
    folder = tmp_path_factory.mktemp("loop")
    return folder, Session(folder, CUSTOM_LOOP).run(CUSTOM_LOOP)


def test_a_custom_loop_prints_the_same_with_one_process_and_with_two(custom_loop):
    folder, printed = custom_loop
    one, two = (re.findall(r"^epoch \d loss ([\d.]+) top-1 ([\d.]+)", out, re.M) for out in printed[:2])
    assert len(one) == len(two) == 3
    for (loss, top1), (other_loss, other_top1) in zip(one, two):
        assert float(loss) == pytest.approx(float(other_loss), abs=2e-3)
        assert float(top1) == pytest.approx(float(other_top1), abs=0.6)  # two images whose scores are close
    assert (folder / "custom_loop.pdparams").is_file()
    on_page = re.findall(r"^epoch \d loss ([\d.]+)", make_text(CUSTOM_LOOP), re.M)
    assert [float(loss) for loss in on_page] == pytest.approx([float(loss) for loss, _ in one], abs=0.02)


def test_the_programs_of_the_library_run_in_their_order(custom_loop):
    _, (_, _, *printed) = custom_loop
    assert len(printed) == 5
    trained, model, scores, batch, types = (out.splitlines()[-1] for out in printed)
    label, score = trained.split()
    assert label in "0123456789" and 0 < float(score) < 1
    assert model == "['vit_tiny_patch16_224', 'vit_tiny_patch16_384', 'vit_tiny_patch16_dinov3_qkvb']"
    value, low, high = map(float, scores.split())
    assert low < value < high
    assert batch == "[64, 1, 16, 16] [64] 1437 1" and types.startswith("0.002 swin_base_")


def open_val(dataset: str, recipe: str):
    return resolve("dataset", dataset).open(settings.load([f"-cfg={recipe}"]).values, "val", None)


def write_lines(path: Path, lines: list) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines))


def write_results(folder: Path) -> None:
    """Results in the formats of other programs, and the truth of boxes and maps, as the page of scoring names them.

    Also write the class folders ``drawn``, of which a run draws its validation set.
    """
    write_class_folders(folder / "drawn")
    write_logits(folder / "logits.csv")
    write_boxes_and_maps(folder)
    write_fcsv_files(folder / "found_points")
    write_class_numbers(folder / "found_scenes")


def write_class_folders(folder: Path) -> None:
    """80 gray images, dark and light."""
    generator = np.random.default_rng(0)
    for number in range(80):
        images = folder / ("dark", "light")[number % 2]
        images.mkdir(parents=True, exist_ok=True)
        pixels = generator.integers(0, 200, (16, 16)) + 55 * (number % 2)
        Image.fromarray(pixels.astype(np.uint8)).save(images / f"{number:02d}.png")


def write_logits(file: Path) -> None:
    """A table as timm's inference.py writes one: how near each digit is to the mean image of each class."""
    train, digits = (resolve("dataset", "digits")(None, split, None) for split in ("train", "val"))
    images, labels = (np.array([np.ravel(train.read(i)[k]) for i in range(len(train))], float) for k in (0, 1))
    means = np.stack([images[labels[:, 0] == digit].mean(axis=0) for digit in range(10)])
    rows = [",".join(["filename", *(f"logit_{digit}" for digit in range(10))])]
    for index in range(len(digits)):
        logits = -np.square(np.ravel(digits.read(index)[0]) - means).sum(axis=1) / 50_000
        rows.append(",".join([digits.identity(index), *(f"{logit:.6f}" for logit in logits)]))
    write_lines(file, rows)


def write_boxes_and_maps(folder: Path) -> None:
    """Images with boxes in YOLO's layout and what a detector saved of them; label maps, and found ones."""
    shapes = open_val("synthetic_shapes", "detr_shapes")
    write_lines(folder / "boxes/data.yaml", ["val: images/val", f"names: [{', '.join(shapes.class_names)}]"])
    for name in ("boxes/images/val", "maps", "found_maps"):
        (folder / name).mkdir(parents=True)
    for index in range(40):
        image, true = shapes.read(index)
        image.save(folder / f"boxes/images/val/{index:03d}.png")
        shares, middles = true.boxes / (*image.size, *image.size), np.zeros((image.height, image.width), np.uint8)
        boxes = [(label, x + w / 2, y + h / 2, w, h) for label, (x, y, w, h) in zip(true.labels, shares)]
        write_lines(folder / f"boxes/labels/val/{index:03d}.txt", [" ".join(map(str, box)) for box in boxes])
        moved = [(k, x + 0.02 * (place % 3), y, w, h, 0.9 - place / 10) for place, (k, x, y, w, h) in enumerate(boxes)]
        write_lines(folder / f"found_boxes/{index:03d}.txt", [" ".join(map(str, box)) for box in moved])
        for label, (x, y, w, h) in zip(true.labels, true.boxes.astype(int)):
            middles[y : y + h, x : x + w] = label + 1
        Image.fromarray(middles).save(folder / f"maps/{index:03d}.png")
        Image.fromarray(np.roll(middles, 2, axis=1)).save(folder / f"found_maps/{index:03d}.png")


def write_fcsv_files(folder: Path) -> None:
    """Points of 3D Slicer, in LPS."""
    heads = open_val("synthetic_landmarks", "landmark_unet3d")
    for index in range(len(heads)):
        places = zip(heads.names, (heads.world(index) + (index % 4, 0, 1)) * (-1, -1, 1))
        points = [f"{n},{x},{y},{z},0,0,0,1,1,1,0,{name},," for n, (name, (x, y, z)) in enumerate(places) if x == x]
        write_lines(folder / f"{heads.case(index)}.fcsv", ["# CoordinateSystem = LPS", *points])


def write_class_numbers(folder: Path) -> None:
    """The numbers of the classes of each scene's points; every tenth is called wall."""
    rooms = open_val("synthetic_rooms", "minkunet14_synthetic_rooms")
    numbers, _ = submitted_numbers(rooms.class_names)  # 1 for wall to 39 for otherfurniture
    for index in range(len(rooms)):
        room = rooms.read(index)
        classes = [1 if k % 10 == 0 or label < 0 else numbers[label] for k, label in enumerate(room.semantic)]
        write_lines(folder / f"{room.name}.txt", classes)


@pytest.fixture(scope="module")
def scoring(tmp_path_factory) -> tuple[Path, list]:
    folder = tmp_path_factory.mktemp("scoring")
    write_results(folder)
    return folder, Session(folder, SCORING).run(SCORING)


def test_scores_are_those_of_the_page_and_samples_have_their_rows(scoring):
    folder, printed = scoring
    assert any(out.count("Interval(value=") == 5 for out in printed)
    trained, difference, last = next(out for out in printed if "after the export" in out).splitlines()[-3:]
    assert trained.startswith("trained weights: top-1 ") and last.endswith("(Paddle's inference model on cpu)")
    assert re.match(r"after the export: top-1 \+0 \[\S+ \S+\]; 0 of 360 images have another answer; ", difference)
    lines = set(make_text(SCORING).splitlines())
    scored = [out.splitlines() for out in printed if "% intervals: half samples of" in out or "maxDets" in out]
    assert [rows[0].split()[0] for rows in scored] == ["360", "40", "40", "24", "24"]
    assert set(scored[0][:8]) < lines  # of classes, as the page shows them
    assert scored[2][1] == "mIoU 0.8107 [0.8004, 0.8205]"
    assert scored[1][2].endswith(" = 1.000")  # AP50: boxes are moved by a fiftieth
    assert scored[3][1].startswith("mIoU 0.89") and scored[4][1].startswith("mre_mm 1.9599 [")
    compared = next(out for out in printed if out.startswith("output/digits: val, "))
    assert "output/theirs: val, results logits.csv\n" in compared and re.search(r"^fixed \d+ ", compared, re.MULTILINE)
    heading, *rows = (folder / "samples.csv").read_text(encoding="utf-8").splitlines()
    assert heading in make_text(SCORING).splitlines() and [row.split(",")[0] for row in rows[:2]] == ["val 0", "val 1"]
    assert any(f"a row for each of {len(rows)} images: samples.csv\n" in out for out in printed)
    (held_out,) = re.findall(r"^note: 20 images of val.* gone;", make_text(SCORING), re.MULTILINE)
    assert any(held_out in out for out in printed)


def test_two_runs_are_compared_and_the_page_shows_what_they_print(scoring):
    folder, printed = scoring
    shown, several, *_ = (out for out in printed if out.startswith("output/six: val, "))
    fixed, broken = (int(re.search(rf"^{kind} (\d+) ", shown, re.MULTILINE)[1]) for kind in ("fixed", "broken"))
    (comparison,) = json.loads((folder / "output" / "compared.json").read_text())["comparisons"]
    assert [len(comparison["fixed"]), len(comparison["broken"])] == [fixed, broken]
    assert comparison["finding"] == "better"
    assert f"{100 * (fixed - broken) / 360:+.2f} [" in shown
    assert comparison["difference"]["value"] == pytest.approx(8.89, abs=4)  # as the page shows, on another machine
    lines = make_text(SCORING).splitlines()
    for line in shown.splitlines()[:2]:
        assert line in lines
    assert re.search(r"^output/again .* 1 +1 +no difference$", several, re.MULTILINE)
    for file in ("compared.html", "eight/compared.html"):
        written = (folder / "output" / file).read_text(encoding="utf-8")
        assert f"{fixed} samples are fixed" in written
        assert written.count("<img ") == min(fixed, 12) + min(broken, 12)
    assert '<a href="eight/compared.html">' in (folder / "output" / "both.html").read_text(encoding="utf-8")


def test_custom_code_trains_and_evaluates(tmp_path):
    page = "docs/guides/extending.md"
    names = {name for name, _, _ in _FILE_OR_BLOCK.findall(make_text(page))}
    assert {
        "arrays.py",
        "things.py",
        "scans.py",
        "counting.py",
        "counting.yaml",
        "dot_files.py",
        "focal.py",
        "brier.py",
        "tversky.py",
        "macro_f1.py",
        "several_labels.py",
        "paired.py",
        "alarm.py",
        "shadows.py",
        "tracks.py",
        "stations.py",
    } <= names
    printed = Session(tmp_path, page).run(page)
    errors = [float(value) for out in printed for value in re.findall(r"^mean error ([\d.]+)", out, re.MULTILINE)]
    assert len(errors) >= 2 and errors[-1] < 1.0  # guessing the mean number of dots is wrong by 2.5
    everything = "\n".join(printed)
    assert "output/focal/checkpoints" in everything and "output/brier/checkpoints" in everything
    interval = r"\[[\d.]+, [\d.]+\]"
    assert re.search(rf"^top-1 .* macro F1 [\d.]+ {interval} \(last and best, epoch 1\)$", everything, re.MULTILINE)
    assert re.search(r"^macro F1 to \+-2 .*: [\d,]+ samples$", everything, re.MULTILINE)
    best = re.search(rf"^(mAP [\d.]+ {interval}) \(.*best, epoch \d[^)]*\)$", everything, re.MULTILINE)[1]
    assert re.search(rf"^{re.escape(best)}$", everything, re.MULTILINE)  # two processes, and one
    with open(tmp_path / "labels.csv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 100 and {row["labels odd"] for row in rows} == {"0.0", "1.0"}
    for pattern in (rf"^output/others  [\d.]+ {interval}  [-+]", r"^  many +[\d.]+", r"^mAP to \+-0.05 "):
        assert re.search(pattern, everything, re.MULTILINE), pattern
    (compared,) = (out for out in printed if re.search(r"^output/two  [\d.]+ \[", out, re.MULTILINE))
    assert "fixed " in compared
    assert "100 samples give +-" in everything


@pytest.mark.parametrize("page, score", [("own_task", "error"), ("own_scores", "count error")])
def test_tasks_and_scores_of_ones_own_run_as_their_pages_say(tmp_path, page, score):
    page = f"docs/guides/{page}.md"
    everything = "\n".join(Session(tmp_path, page).run(page))
    assert re.search(rf"{score} [\d.]+ \[[\d.]+, [\d.]+\]", everything)


def test_every_file_that_a_tutorial_runs_is_on_its_page():
    for page in (
        "docs/tutorials/quickstart_custom_images.md",
        "docs/tutorials/keypoints.md",
        "docs/tutorials/panoptic.md",
        CUSTOM_LOOP,
        "docs/guides/extending.md",
        "docs/guides/own_task.md",
        "docs/guides/own_scores.md",
    ):
        named = {name for name, _, _ in _FILE_OR_BLOCK.findall(make_text(page)) if name}
        run = {word for command in make_commands(page) for word in re.findall(r"[\w./]+\.(?:py|yaml|sh)", command)}
        written = {word for word in run if word.startswith("output/")}  # by an earlier command of the page
        assert run and {word for word in run - written if not (ROOT / word).exists()} <= named
