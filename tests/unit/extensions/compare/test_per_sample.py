"""Tables with a row for each sample agree with slow loops over samples, and open in a spreadsheet as what they are."""

import csv
import io
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import paddle
import pytest
from support.networks import coco_peer
from support.refusals import refusal_of
from support.samples.drawn_detections import CATEGORY_IDS, as_coco, drawn
from support.samples.drawn_detections import NAMES as ANIMALS
from support.samples.instance_scenes import NAMES, scene
from support.thread_ranks import acting_as

from paddlevit_dist import UserError
from paddlevit_dist.core import settings as config
from paddlevit_dist.core.engine.metrics_check import compute_columns
from paddlevit_dist.core.intervals import means
from paddlevit_dist.core.metrics.classification import ClassificationMetrics
from paddlevit_dist.core.tasks.metrics import Metrics, PerSampleMetrics
from paddlevit_dist.core.tasks.sample_groups import SampleGroups
from paddlevit_dist.core.tasks.step_types import TaskTraits
from paddlevit_dist.extensions.compare.per_sample import PerSampleWriter
from paddlevit_dist.images.detection.detections import DetectedObjects, corners_to_boxes
from paddlevit_dist.images.detection.metrics import DetectionMetrics
from paddlevit_dist.points.instances.metrics import InstanceMetrics
from paddlevit_dist.points.segmentation.metrics import SemanticMetrics
from paddlevit_dist.volumes.landmarks.metrics import LandmarkMetrics


def make_columns(metrics: Metrics) -> dict:
    metrics.compute(metrics.state)
    return {name: list(column) for name, column in metrics.columns(metrics.per_sample()).items()}


def test_an_image_has_its_class_its_place_and_its_loss():
    logits = np.random.default_rng(0).normal(size=(9, 4)).astype(np.float32)
    logits[2] = [1, 1, 0, 1]  # ties: the first of equal classes is the best
    logits[5, 1] = np.nan
    labels = np.arange(9) % 4
    metrics = ClassificationMetrics(4, list("abc"))
    for part in (slice(0, 4), slice(4, 9)):
        metrics.update(paddle.to_tensor(logits[part]), paddle.to_tensor(labels[part]))
    found = make_columns(metrics)
    for row, (scores, label) in enumerate(zip(logits.astype(float), labels)):
        assert found["truth"][row] == "abc3"[label]
        if row == 5:
            assert found["prediction"][row] is None and found["rank"][row] is None and not found["correct"][row]
            assert np.isnan(found["confidence"][row])
            continue
        shares = np.exp(scores) / np.exp(scores).sum()
        best = max(range(4), key=lambda k: (scores[k], -k))
        before = [k for k in range(4) if scores[k] > scores[label] or (scores[k] == scores[label] and k < label)]
        assert found["prediction"][row] == "abc3"[best] and found["rank"][row] == 1 + len(before)
        assert found["correct"][row] == (best == label)
        assert found["confidence"][row] == pytest.approx(shares[best], rel=1e-5)
        assert found["loss"][row] == pytest.approx(-np.log(shares[label]), rel=1e-5)


def iou(one, other) -> float:
    across = min(one[2], other[2]) - max(one[0], other[0])
    down = min(one[3], other[3]) - max(one[1], other[1])
    shared = max(across, 0) * max(down, 0)
    area = sum((box[2] - box[0]) * (box[3] - box[1]) for box in (one, other))
    return shared / (area - shared)


def test_the_ap_of_an_image_is_that_of_a_data_set_of_one():
    metrics = DetectionMetrics(ANIMALS, least_score=0.0)
    for number in range(8):
        metrics.update(number + 1, *drawn(number))
    found, dataset = make_columns(metrics), as_coco(8)
    for number in range(8):
        truth, detections = drawn(number)
        rows = zip(detections.labels, detections.scores.tolist(), corners_to_boxes(detections.boxes).tolist())
        results = [
            {"image_id": number + 1, "category_id": CATEGORY_IDS[label], "score": score, "bbox": box}
            for label, score, box in rows
        ]
        names = dict(zip(CATEGORY_IDS, ANIMALS))
        counted = dict.fromkeys(ANIMALS, 0)
        for result in results:
            counted[names[result["category_id"]]] += 1
        assert found["prediction"][number] == ", ".join(f"{name} {n}" for name, n in counted.items() if n)
        true = [int(np.sum((truth.labels == label) & ~truth.is_crowd)) for label in range(4)]
        assert found["truth"][number] == ", ".join(f"{name} {n}" for name, n in zip(ANIMALS, true) if n)
        if results and sum(true):
            stats = coco_peer.evaluated(dataset, results, imgIds=[number + 1]).stats
            ours = [found[name][number] for name in ("AP", "AP50", "AP75", "AR_100")]
            assert ours == pytest.approx([stats[place] for place in (0, 1, 2, 8)], abs=1e-6)
        elif not sum(true):
            assert np.isnan(found["AP"][number])
    assert sum(np.isnan(found["AP"])) < 5


def test_objects_found_missed_and_made_up_are_counted_from_a_score_on():
    generator = np.random.default_rng(3)
    corners = generator.uniform(0, 50, (6, 5, 2))
    boxes = np.concatenate([corners, corners + generator.uniform(15, 40, (6, 5, 2))], axis=2)
    moved = boxes + generator.normal(0, 4, boxes.shape)
    scores = generator.random((6, 5)).astype(np.float32)
    metrics = DetectionMetrics(["a"], least_score=0.4)
    for number in range(6):
        sizes = boxes[number, :, 2:] - boxes[number, :, :2]
        written = np.concatenate([boxes[number, :, :2], sizes], axis=1)
        truth = SimpleNamespace(
            boxes=written, labels=np.zeros(5, int), areas=sizes.prod(axis=1), is_crowd=np.zeros(5, bool)
        )
        found = DetectedObjects(moved[number].astype(np.float32), scores[number], np.zeros(5, int))
        metrics.update(number, truth, found)
    table = make_columns(metrics)
    for number in range(6):
        free, right = set(range(5)), 0
        counting = [k for k in np.argsort(-scores[number]) if scores[number, k] >= 0.4]
        for k in counting:
            overlaps = {j: iou(moved[number, k].astype(np.float32).astype(float), boxes[number, j]) for j in free}
            best = max(overlaps, key=overlaps.get, default=None)
            if best is not None and overlaps[best] >= 0.5:
                free.remove(best)
                right += 1
        counts = [table[name][number] for name in ("true positives", "false positives", "missed")]
        assert counts == [right, len(counting) - right, 5 - right]
        assert table["highest score"][number] == scores[number].max()


def test_the_scores_of_a_scene_are_those_of_its_points():
    generator = np.random.default_rng(1)
    sizes = [40, 0, 25, 30]
    offsets = np.cumsum([0, *sizes])
    labels, predictions = generator.integers(0, 3, (2, 95))
    labels[40:50] = -100
    labels[65:] = -100  # all of the last one
    losses = np.where(labels >= 0, generator.gamma(1, 1, 95), 0).astype(np.float32)
    metrics = SemanticMetrics(list("abc"))
    tensors = [paddle.to_tensor(array) for array in (predictions, labels, losses, offsets)]
    metrics.update(*tensors)
    found = make_columns(metrics)
    for number, (first, end) in enumerate(zip(offsets[:-1], offsets[1:])):
        pairs = [(t, p) for t, p in zip(labels[first:end], predictions[first:end]) if t >= 0]
        assert found["points"][number] == len(pairs)
        if not pairs:
            assert np.isnan([found[name][number] for name in ("loss", "mIoU", "accuracy", "IoU a")]).all()
            continue
        ious = []
        for k in range(3):
            shared = sum(t == k and p == k for t, p in pairs)
            whole = sum(t == k or p == k for t, p in pairs)
            ious.append(shared / whole)
            assert found[f"IoU {'abc'[k]}"][number] == pytest.approx(shared / whole)
        assert found["mIoU"][number] == pytest.approx(np.mean(ious))
        assert found["accuracy"][number] == pytest.approx(np.mean([t == p for t, p in pairs]))
        assert found["loss"][number] == pytest.approx(losses[first:end].astype(float).sum() / len(pairs), rel=1e-9)


def test_the_ap_of_a_scene_is_that_of_an_evaluation_of_it_alone():
    together = InstanceMetrics(NAMES, [1, 2, 3])
    alone = []
    for number in range(5):
        true_class, true_instance, predictions = scene(number)
        if number == 4:  # its largest instance alone
            true_instance = np.where(true_instance == np.bincount(true_instance.clip(0)).argmax(), true_instance, -100)
        labels = paddle.to_tensor(true_class)
        one = InstanceMetrics(NAMES, [1, 2, 3])
        for metrics in (together, one):
            metrics.update_instances(true_class, true_instance, predictions)
            metrics.update((labels + 1) % 3, labels, paddle.full([2000], 0.25))
        alone.append(one.compute(one.state))
    empty = np.zeros(2000, int), np.full(2000, -100), scene(0)[2]
    together.update_instances(*empty)
    together.update(paddle.to_tensor(empty[0]), paddle.to_tensor(empty[0]), paddle.zeros([2000]))
    found = make_columns(together)
    for number, values in enumerate(alone):
        for name in ("AP", "AP50", "AP25", "mIoU", "accuracy", *(n for n in values if n.startswith("AP "))):
            assert found[name][number] == pytest.approx(values[name]), name
        matches = together.tables[number]
        is_wrong, is_lowest = ~matches.is_right, matches.thresholds == 0  # an IoU of 0.5
        assert found["false positives"][number] == np.sum(is_wrong & is_lowest) < np.sum(is_wrong)
        assert found["true positives"][number] == np.sum(matches.is_right & is_lowest)
        assert found["true positives"][number] + found["missed"][number] == found["instances"][number]
        assert found["loss"][number] == pytest.approx(0.25)
    assert sum(found["true positives"]) > 3 and list(found["instances"][4:]) == [1, 0] and np.isnan(found["AP"][5])


def test_a_volume_has_the_error_and_the_place_of_each_landmark():
    generator = np.random.default_rng(2)
    true, found = generator.normal(0, 10, (2, 3, 2, 3))
    true[1, 0] = np.nan
    metrics = LandmarkMetrics(["nose", "chin"])
    for number in range(3):
        places = np.concatenate([found[number], true[number], np.full((2, 1), 0.5)], axis=1)
        metrics.update(np.linalg.norm(found[number] - true[number], axis=1), places, "LPS")
    table = make_columns(metrics)
    for number in range(3):
        errors = []
        for landmark, name in enumerate(("nose", "chin")):
            error = sum((found[number, landmark, k] - true[number, landmark, k]) ** 2 for k in range(3)) ** 0.5
            assert table[f"{name} error_mm"][number] == pytest.approx(error, nan_ok=True)
            assert table[f"{name} y_mm"][number] == found[number, landmark, 1]
            assert table[f"{name} true_z_mm"][number] == pytest.approx(true[number, landmark, 2], nan_ok=True)
            errors += [] if np.isnan(error) else [error]
        assert table["mre_mm"][number] == pytest.approx(np.mean(errors))
        assert table["sdr_4mm"][number] == pytest.approx(100 * np.mean([error <= 4 for error in errors]))
    assert table["world"] == ["LPS"] * 3


class Own(PerSampleMetrics):
    """What somebody's own metrics are: a number for each sample."""

    def per_sample(self):
        return [np.array([3.0, np.nan, 4.5])]

    def bootstrap_values(self, table, weights):
        return means({"error": table[0]})(weights)


def written(folder: Path, names: list[str], columns: dict, suffix: str = ".csv", groups=None) -> Path:
    """The file of samples with these names."""
    target, said = folder / f"table{suffix}", []
    table = SimpleNamespace(
        indices=np.arange(len(names)), columns=[], metrics=SimpleNamespace(columns=lambda _: columns), groups=groups
    )
    run = SimpleNamespace(
        config=SimpleNamespace(PER_SAMPLE=str(target)),
        eval_dataset=SimpleNamespace(name=names.__getitem__, labeled=True),
        evaluator=SimpleNamespace(table=table),
        run_log=SimpleNamespace(log_and_print=said.append),
        task=SimpleNamespace(traits=TaskTraits(sample_name="images"), build_metrics=Own),
    )
    PerSampleWriter(run).after_evaluate({})
    assert said == [f"wrote a row for each of {len(names):,} images: {target}"]
    assert list(folder.iterdir()) == [target] and run.evaluator.keeps_table
    PerSampleWriter(run).after_evaluate({})
    assert said[1] == f"{said[0]} (replaces an earlier one)"
    return target


def test_metrics_of_ones_own_have_a_row_for_each_sample_too(tmp_path):
    own = Own()
    content = written(tmp_path, list("xyz"), own.columns(own.per_sample())).read_bytes()
    assert content == b"name,error\r\nx,3.0\r\ny,\r\nz,4.5\r\n"


def test_the_group_comes_before_numbers_of_six_digits(tmp_path):
    groups = SampleGroups("video", np.array(["v1", "v2", "v1"]), "file")
    columns = {"error": np.array([1.23456789, -1.23456789e-7, np.inf]), "count": np.array([12345678, 0, 1])}
    file = written(tmp_path, list("xyz"), columns, groups=groups)
    assert file.read_bytes() == (
        b"name,group,error,count\r\nx,v1,1.23457,12345678\r\ny,v2,-1.23457e-07,0\r\nz,v1,,1\r\n"
    )
    run = SimpleNamespace(config=SimpleNamespace(PER_SAMPLE=str(tmp_path / "other.csv")), evaluator=SimpleNamespace())
    run.eval_dataset, run.task = SimpleNamespace(labeled=True), SimpleNamespace(build_metrics=Own)
    with acting_as(1, 2):
        PerSampleWriter(run).after_evaluate({})
    assert list(tmp_path.iterdir()) == [file]


def test_columns_of_ones_own_that_fail_or_lack_rows_are_told_in_a_line(tmp_path):
    with pytest.raises(UserError, match=r"^columns of SimpleNamespace: 'error' has 2 rows for 3 samples: return one"):
        written(tmp_path, list("xyz"), {"error": [1.0, 2.0]})

    class Failing(Own):
        def columns(self, table):
            return {"error": table["error"]}

    with pytest.raises(UserError, match=r"^columns of Failing: TypeError: .* \(test_per_sample.py, line \d+\)$"):
        compute_columns(Failing(), [np.zeros(3)], 3)
    assert not [*tmp_path.iterdir()]


def test_no_text_is_a_formula_and_every_text_is_one_cell(tmp_path):
    names = ["=1+1", "+a", "-b", "@c", "\td", "\re", 'say "f", please', "g\nh", "日本/ä", "caf\udce9", "-5"]
    columns = {"=class": ["-1", *["plain"] * 10], "change": np.linspace(-5, 5, 11), "right": np.arange(11) % 2 == 0}
    content = written(tmp_path, names, columns).read_bytes()
    assert content.startswith(b"name,") and content.count(b"\r\n") == content.count(b"\n") == 12
    rows = list(csv.reader(io.StringIO(content.decode("utf-8"), newline="")))
    assert rows[0] == ["name", "'=class", "change", "right"] and {len(row) for row in rows} == {4}
    shown = [row[0] for row in rows[1:]]
    assert shown[:4] == ["'=1+1", "'+a", "'-b", "'@c"] and shown[6] == names[6] and shown[8] == names[8]
    assert not any(cell.startswith(("=", "+", "@", "\t", "\r")) for row in rows for cell in row)
    assert [row[2] for row in rows[1:3]] == ["-5.0", "-4.0"] and rows[1][3] == "True"  # numbers stay numbers


@pytest.mark.parametrize("suffix", [".parquet", ".PARQUET"])
def test_a_parquet_file_has_the_same_with_its_types(tmp_path, suffix):
    try:
        from pyarrow import parquet
    except ImportError as error:  # the newest needs numpy 2
        pytest.skip(str(error))
    columns = {"truth": ["a", None], "loss": np.float32([0.1, np.nan]), "rank": [1, None], "correct": [True, False]}
    table = parquet.read_table(written(tmp_path, ["=x", "caf\udce9"], columns, suffix)).to_pydict()
    assert table["name"] == ["=x", "caf\\xe9"] and table["truth"] == ["a", None] and table["loss"] == [0.1, None]
    assert table["rank"] == [1, None] and table["correct"] == [True, False]


def test_what_cannot_be_written_is_refused_before_anything_starts(tmp_path, monkeypatch):
    def refused(target, *words) -> str:
        return refusal_of(config.load, [f"-per_sample={target}", *(words or ("-eval", "-pretrained=x"))])

    assert f"there is no folder {tmp_path}/gone: create it" in refused(tmp_path / "gone" / "a.csv")
    assert "expected a file that ends in .csv or .parquet" in refused(tmp_path / "a.xlsx")
    assert "expected a file that ends in" in refused(tmp_path)
    (tmp_path / "b.csv").mkdir()
    assert "it is a folder: choose another file" in refused(tmp_path / "b.csv")
    assert "is for an evaluation: add -eval" in refused(tmp_path / "a.csv", "-epochs=1")
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    assert "needs pyarrow (pip install pyarrow)" in refused(tmp_path / "a.parquet")


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".CSV", ".PARQUET"])
def test_a_table_replaces_one_of_an_evaluation_and_no_file_of_others(tmp_path, suffix):
    words = ["-eval", "-pretrained=x"]
    try:
        own = written(tmp_path, ["x", "y"], {"truth": ["a", "b"]}, suffix)
        config.load([f"-per_sample={own}", *words])
    except ImportError as error:
        pytest.skip(str(error))
    for content in (b"name,truth\nx,a\n", b"", b"id,truth\r\n"):
        own.write_bytes(content)
        with pytest.raises(UserError, match="was not written by an earlier evaluation: choose another, or remove it"):
            config.load([f"-per_sample={own}", *words])
        assert own.read_bytes() == content


def test_metrics_that_know_no_samples_and_samples_without_labels_are_refused():
    task = SimpleNamespace(build_metrics=Metrics)
    settings = SimpleNamespace(PER_SAMPLE="a.csv", TASK="counting", DATA=SimpleNamespace(SPLIT="test"))
    run = SimpleNamespace(config=settings, task=task, evaluator=SimpleNamespace(table=None))
    run.eval_dataset = SimpleNamespace(labeled=True)
    with pytest.raises(UserError, match="the metrics of task counting have no results for each sample"):
        PerSampleWriter(run)
    run.eval_dataset = SimpleNamespace(labeled=False)
    with pytest.raises(UserError, match="the samples of test have no labels"):
        PerSampleWriter(run)
    run.eval_dataset, run.task.build_metrics = SimpleNamespace(labeled=True), Own
    with pytest.raises(UserError, match="have no results for each sample"):
        PerSampleWriter(run).after_evaluate({})
