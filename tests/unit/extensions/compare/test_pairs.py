"""Comparisons of tables agree with slow loops over samples, for each sort of scores."""

import functools
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import paddle
import pytest
from scipy import stats
from support.registrations import forgotten
from support.samples.instance_scenes import NAMES, scene
from yacs.config import CfgNode

from paddlevit_dist import UserError, register_task
from paddlevit_dist.core.intervals import paired_difference
from paddlevit_dist.core.intervals.proportions import mcnemar_test
from paddlevit_dist.core.metrics.classification import ClassificationMetrics
from paddlevit_dist.core.metrics.confidence import IntervalConfig, PerSampleResults, compute_intervals
from paddlevit_dist.core.tasks.dataset import TransformedDataset
from paddlevit_dist.core.tasks.sample_groups import SampleGroups
from paddlevit_dist.extensions.compare import tables
from paddlevit_dist.extensions.compare.pairs import TablePair, compare_tables, find_warnings
from paddlevit_dist.images import Classification
from paddlevit_dist.images.detection.detections import DetectedObjects
from paddlevit_dist.images.detection.evaluation.matching import BoxGroundTruth
from paddlevit_dist.images.detection.metrics import DetectionMetrics
from paddlevit_dist.images.pretraining.metrics import PretrainingMetrics
from paddlevit_dist.points.instances.metrics import InstanceMetrics
from paddlevit_dist.points.segmentation.metrics import SemanticMetrics
from paddlevit_dist.volumes.landmarks.metrics import RADII_MM, LandmarkMetrics, rate_name
from paddlevit_dist.volumes.segmentation.metrics import VolumeMetrics

SAMPLES = 12


# Each adds sample ``index`` as the model ``model`` answers it.


def add_image(metrics, index: int, model: int) -> None:
    logits = np.random.default_rng([index, model]).normal(size=(1, 7)).astype(np.float32)
    logits[0, index % 7] += model
    metrics.update(paddle.to_tensor(logits), paddle.to_tensor([index % 7]))


def add_boxes(metrics, index: int, model: int) -> None:
    generator = np.random.default_rng(index)
    corners = generator.uniform(0, 50, (4, 2))
    boxes = np.concatenate([corners, generator.uniform(20, 60, (4, 2))], axis=1)
    truth = BoxGroundTruth(boxes, np.arange(4) % 2, boxes[:, 2:].prod(axis=1), np.zeros(4, bool))
    noise = np.random.default_rng([index, model])
    moved = np.concatenate([corners, corners + boxes[:, 2:]], axis=1) + noise.normal(0, 2 + 2 * model, (4, 4))
    found = DetectedObjects(moved.astype(np.float32), noise.random(4).astype(np.float32), np.arange(4) % 2)
    metrics.update(1000 - index, truth, found)


def add_scene(metrics, index: int, model: int) -> None:
    true_class, _, _ = scene(index)
    labels = paddle.to_tensor(true_class)
    wrong = paddle.to_tensor(np.random.default_rng([index, model]).random(2000) < 0.2 + 0.05 * model)
    metrics.update(paddle.where(wrong, (labels + 1) % 3, labels), labels, paddle.to_tensor(1.0))


def add_instances(metrics, index: int, model: int) -> None:
    true_class, true_instance, predictions = scene(index)
    metrics.update_instances(true_class, true_instance, predictions[: 12 - 4 * model])
    labels = paddle.to_tensor(true_class)
    metrics.update((labels + model) % 3, labels, paddle.to_tensor(1.0))


def add_volume(metrics, index: int, model: int) -> None:
    metrics.update(np.random.default_rng([index, model]).gamma(2.0, 1.0, 3))


def add_organs(metrics, index: int, model: int) -> None:
    true = np.random.default_rng(index).integers(0, 3, (4, 5, 6)).astype(np.uint8)
    is_kept = np.random.default_rng([index, model]).random(true.shape) < 0.8 - 0.1 * model
    metrics.update(np.where(is_kept, true, (true + 1) % 3).astype(np.uint8), true, np.array([2.0, 1.0, 0.7]))


def add_unlabeled(metrics, index: int, model: int) -> None:
    loss = np.random.default_rng([index, model]).gamma(2.0, 1.0, 1).astype(np.float32)
    metrics.update({"loss": paddle.to_tensor(loss)}, None, paddle.to_tensor([-1]))


KINDS = {
    "images": (lambda: ClassificationMetrics(7, list("abcdefg")), add_image, ("top-1", True)),
    "boxes": (lambda: DetectionMetrics(["a", "b"]), add_boxes, ("AP", True)),
    "scenes": (lambda: SemanticMetrics(NAMES), add_scene, ("mIoU", True)),
    "instances": (lambda: InstanceMetrics(NAMES, [1, 2, 3]), add_instances, ("AP", True)),
    "volumes": (lambda: LandmarkMetrics(list("abc")), add_volume, ("mre_mm", False)),
    "unlabeled": (lambda: PretrainingMetrics((), 5), add_unlabeled, ("loss", False)),
    "organs": (lambda: VolumeMetrics(["background", "a", "b"]), add_organs, ("Dice", True)),
}


def evaluated(kind: str, models: list[int], order=range(SAMPLES)):
    """Metrics and values where sample ``index`` was answered by ``models[index]``."""
    make, add, _ = KINDS[kind]
    metrics = make()
    for index in order:
        add(metrics, index, models[index])
    return metrics, metrics.compute(metrics.state)


@functools.cache
def values_of(kind: str, models: tuple[int, ...]) -> dict[str, float]:
    """The values of ``evaluated``, in the order of the samples."""
    return evaluated(kind, [*models])[1]


class Named(TransformedDataset):
    def __init__(self, names):
        self.names_of = names

    def describe(self, index):
        return self.names_of[index]


def make_table(
    folder: Path, kind: str, models, order=range(SAMPLES), names="abcdefghijkl", **more
) -> tables.EvaluationTable:
    """What an evaluation writes, read again; the data hold the samples in this order."""
    metrics, _ = evaluated(kind, models, order)
    kept: list = []
    intervals = compute_intervals(metrics, range(len(order)), IntervalConfig(95, 20), kept.append)
    config = CfgNode({"TASK": kind, "DATA": {"DATASET": "drawn"}})
    task = SimpleNamespace(best_metric=KINDS[kind][2], signature=lambda: {"DATA.IMAGE_SIZE": more.get("size", 16)})
    samples = Named([names[row] for row in order])
    parts = {"table": kept[0], "config": config, "task": task, "samples": samples, "intervals": intervals}
    evaluation = SimpleNamespace(**parts, facts=more.get("facts", {}))
    folder.mkdir()
    tables.write_evaluated(folder / "intervals.json", evaluation, {"epoch": 1})
    table = tables.read_table(str(folder))
    values = table.kind.recompute([table.arrays], table.about["classes"])
    again = {name: column[0] for name, column in values(np.ones((1, len(order)))).items()}
    assert {name: again[name] for name in intervals} == pytest.approx({n: i.value for n, i in intervals.items()})
    return table


FIRST, SECOND = [0] * SAMPLES, [1] * SAMPLES


def evaluate_samples(kind: str, model: int, samples: np.ndarray) -> float:
    """The score of a model on these samples alone."""
    return evaluated(kind, [model] * SAMPLES, samples.tolist())[1][KINDS[kind][2][0]]


@pytest.mark.parametrize("kind", KINDS)
def test_swapped_answers_score_as_an_evaluation_of_both_models_or_of_each_part_if_they_are_ranked(tmp_path, kind):
    order = np.random.default_rng(4).permutation(SAMPLES)
    pair = TablePair.match(make_table(tmp_path / "a", kind, FIRST), make_table(tmp_path / "b", kind, SECOND, order))
    swaps = np.random.default_rng(5).random((3, SAMPLES)) < 0.5
    swaps[0] = False
    for swap, found in zip(swaps, pair.scores.differences(swaps)[KINDS[kind][2][0]]):
        if kind in ("boxes", "instances") and swap.any():
            parts = [np.flatnonzero(~swap), np.flatnonzero(swap)]
            objects = pair.kind.count_objects(pair.first.arrays)
            shares = (objects[part].sum() / objects.sum() for part in parts)
            kept, swapped = (
                share * (evaluate_samples(kind, 1, p) - evaluate_samples(kind, 0, p)) for share, p in zip(shares, parts)
            )
            expected = kept - swapped
        else:
            ours, theirs = (values_of(kind, tuple(which.astype(int).tolist())) for which in (swap, ~swap))
            expected = theirs[KINDS[kind][2][0]] - ours[KINDS[kind][2][0]]
        assert found == pytest.approx(expected, abs=1e-6)


def test_p_of_a_ranking_does_not_depend_on_the_scale_of_either_model():
    generator, names = np.random.default_rng(0), list(map(str, range(60)))
    labels = generator.random((60, 3)) < 0.3
    about = {"task": "t", "kind": "labels", "score": "mAP", "more_is_better": True, "classes": ["a", "b", "c"]}
    first, second = (generator.normal(size=(60, 3)) + skill * labels for skill in (0.8, 1.2))
    ps = []
    for logits in (second, second + 4, np.exp(3 * second) - [0, 5, 90]):  # also another order among classes
        pair_of_tables = [
            tables.EvaluationTable("run", {**about, "digest": ""}, names, arrays, Path("x"))
            for arrays in ({"labels": labels.astype(np.int8), "logits": x, "chosen": x > 0} for x in (first, logits))
        ]
        pair = TablePair(*pair_of_tables, pair_of_tables[0].kind, np.arange(60), about["classes"])
        ps.append(pair.scores.measure_swaps(1000)["mAP"].p)
    assert ps[1:] == pytest.approx([ps[0]] * 2, rel=1e-9) and 1e-4 < ps[0] < 0.2


@pytest.mark.parametrize("kind", KINDS)
def test_the_order_of_the_data_changes_nothing(tmp_path, kind):
    first, second = make_table(tmp_path / "a", kind, FIRST), make_table(tmp_path / "b", kind, SECOND)
    found = compare_tables(first, second)
    turned = make_table(tmp_path / "c", kind, SECOND, range(SAMPLES)[::-1])
    again = compare_tables(first, turned)
    ours, theirs = values_of(kind, tuple(FIRST)), values_of(kind, tuple(SECOND))
    score = found["score"]
    assert found["difference"]["value"] == pytest.approx(theirs[score] - ours[score], abs=1e-4)
    assert found["of_second"]["value"] == pytest.approx(theirs[score], rel=1e-4)
    kinds = [kind for kind in ("fixed", "broken", "better", "worse") if kind in found]
    assert len(kinds) == 2 and any(found[kind] for kind in kinds)
    assert {**again, "second": 0} == {**found, "second": 0}
    assert found["warnings"] == [] and 0 < found["p"] <= 1
    sizes = [abs(row["difference"]["value"]) for row in found["classes"]]
    assert not any(name.startswith(("first ", "second ")) for name in found["values"])
    assert score in found["values"] and not set(found["values"]) & {row["score"] for row in found["classes"]}
    assert (len(sizes) > 1) == (kind != "unlabeled") and sizes == sorted(sizes, reverse=True)


def test_the_interval_of_a_difference_of_means_is_student_s_of_pairs(tmp_path):
    first, second = make_table(tmp_path / "a", "volumes", FIRST), make_table(tmp_path / "b", "volumes", SECOND)
    errors = [
        [np.random.default_rng([index, model]).gamma(2.0, 1.0, 3) for index in range(SAMPLES)] for model in (0, 1)
    ]
    changes = [np.mean(second) - np.mean(first) for first, second in zip(*errors)]
    half = 2.200985 * np.std(changes, ddof=1) / SAMPLES**0.5  # Student's quantile with 11 degrees of freedom
    compared = compare_tables(first, second)
    found = compared["difference"]
    assert [found["low"], found["high"]] == pytest.approx([np.mean(changes) - half, np.mean(changes) + half], rel=1e-4)
    ends = np.array([[np.mean(row) for row in of_model] for of_model in errors])  # (2, samples)
    ranked = sorted(range(SAMPLES), key=lambda row: -abs(ends[1, row] - ends[0, row]))
    for kind, sign in (("better", -1), ("worse", 1)):
        rows = [row for row in ranked if sign * (ends[1, row] - ends[0, row]) > 0]
        assert [each["sample"] for each in compared[kind]] == ["abcdefghijkl"[row] for row in rows]
        numbers = [(each["of_first"], each["of_second"]) for each in compared[kind]]
        assert numbers == [tuple(float(f"{end:.6g}") for end in ends[:, row]) for row in rows]


def test_samples_that_changed_are_named(tmp_path):
    first, second = make_table(tmp_path / "a", "images", FIRST), make_table(tmp_path / "b", "images", SECOND)
    found = compare_tables(first, second)
    rough = "the interval is rough: 12 samples (below 50), 6 right (below 10): "  # 6 of the better
    expected = [f"{rough}95 % intervals held in 83 % of simulations or more, in fewer with rare large errors"]
    assert found["notes"] == compare_tables(second, first)["notes"] == expected
    right = []
    for model in (0, 1):
        logits = [np.random.default_rng([index, model]).normal(size=7) for index in range(SAMPLES)]
        for index, row in enumerate(logits):
            row[index % 7] += model
        right.append([int(np.argmax(row)) == index % 7 for index, row in enumerate(logits)])
    fixed = ["abcdefghijkl"[index] for index in range(SAMPLES) if right[1][index] and not right[0][index]]
    broken = ["abcdefghijkl"[index] for index in range(SAMPLES) if right[0][index] and not right[1][index]]
    assert [row["sample"] for row in found["fixed"]] == fixed and [row["sample"] for row in found["broken"]] == broken
    assert found["fixed"][0]["class"] == "abcdefg"["abcdefghijkl".index(fixed[0]) % 7]
    assert found["p"] == pytest.approx(mcnemar_test(len(fixed), len(broken)), rel=1e-5)


def test_settings_of_the_trainings_that_differ_are_named_but_those_that_are_warnings(tmp_path):
    tables_of = [make_table(tmp_path / name, "images", models) for name, models in (("a", FIRST), ("b", SECOND))]
    for number, name in enumerate("ab"):
        content = f"TASK: classification\nSEED: {number}\nSAVE: {name}\nTRAIN: {{TF32: {number == 0}}}\n"
        (tmp_path / name / "config.yaml").write_text(content)  # TF32 is in the protocol of both evaluations
    assert compare_tables(*tables_of)["settings"] == {"SEED": [0, 1]}


def group_samples(table, number):
    """Return the table with its samples in this number of groups."""
    return table._replace(groups=SampleGroups("site", (np.arange(SAMPLES) % number).astype(str), "file"))


@pytest.mark.parametrize(("differing", "noted"), [(4, True), (5, True), (6, False), (0, False)])
def test_few_groups_that_differ_are_counted(differing, noted):
    """Of 400 images in 200 groups some are right in the second model alone."""
    about = {"task": "classification", "kind": "classes", "score": "top-1", "more_is_better": True, "digest": "d"}
    about |= {"classes": ["a", "b"], "split": "val", "dataset": "d", "of": "results r", "protocol": {}, "input": {}}
    labels, of_groups = np.arange(400) % 2, SampleGroups("patient", np.repeat(np.arange(200), 2).astype(str), "x")
    tables_of = []
    for run, wrong in (("a", 20 + differing), ("b", 20)):
        arrays = {"labels": labels, "places": (np.arange(400) // 2 < wrong).astype(int), "losses": np.ones(400)}
        names = list(map(str, range(400)))
        table = tables.EvaluationTable(run, about, names, {**arrays, "top": np.array([1])}, Path("x"), of_groups)
        tables_of.append(table)
    found = compare_tables(*tables_of)
    line = f"only {differing} of 200 groups differ in top-1: p and the interval are rough"
    assert [note for note in found["notes"] if "differ" in note] == [line] * noted
    t = (differing * 199 / (200 - differing)) ** 0.5  # of so many equal gains among 200
    assert found["p"] == pytest.approx(2 * stats.t.sf(t, 199), rel=1e-3)
    assert (found["p"] < 0.05) == (found["difference"]["low"] > 0) == (differing > 3)


def test_what_else_differs_is_warned(tmp_path):
    first = make_table(tmp_path / "a", "volumes", FIRST)
    second = make_table(tmp_path / "b", "volumes", SECOND, size=32, facts={"precision": "float16"})
    said = find_warnings(first, second)
    assert said == [
        f"protocol: precision is not set in {first.run}, float16 in {second.run}",
        f"input: DATA.IMAGE_SIZE is 16 in {first.run}, 32 in {second.run}",
    ]
    of_test = second._replace(about={**first.about, "split": "test"})
    assert find_warnings(first, of_test) == [f"split: val in {first.run}, test in {second.run}"]
    long, cut = "s" * 61, f"{'s' * 57}..."
    one, other = ({**first.about, "split": split, "protocol": {"p": split}} for split in (long, "t" + long))
    assert find_warnings(first._replace(about=one), second._replace(about=other)) == [
        f"split: {cut} in {first.run}, t{cut[1:]} in {second.run}",
        f"protocol: p is {cut} in {first.run}, t{cut[1:]} in {second.run}",
    ]
    named = {**other, "of": f"{tables.RESULTS}a.csv", "split": ""}
    told = f"protocol, input: unknown for {second.run}, the results of another program"
    assert find_warnings(first, second._replace(about=named)) == [told]


def test_other_groups_are_warned_and_other_names_of_the_same_ones_are_not(tmp_path):
    first, second = make_table(tmp_path / "a", "volumes", FIRST), make_table(tmp_path / "b", "volumes", SECOND)

    def warned(names, others) -> list[str]:
        sides = (SampleGroups("video", np.array(list(groups)), "own") for groups in (names, others))
        grouped = (table._replace(groups=groups) for table, groups in zip((first, second), sides))
        return [line for line in compare_tables(*grouped)["warnings"] if line.startswith("groups: ")]

    assert warned("aabbccddeeff", "ppqqrrssttuu") == []
    used = f"used are the groups of {first.run}"
    for others, number in (("ppqqrrssttuv", 7), ("ppqqrrsstttt", 5), ("ppqqrrssttup", 6)):
        told = f"groups: {second.run} has different ones, by {number} groups (video); {used}"
        assert warned("aabbccddeeff", others) == [told]


def test_a_users_task_is_compared_with_the_task_that_it_is_derived_from(tmp_path):
    first, second = (make_table(tmp_path / name, "images", model) for name, model in (("a", FIRST), ("b", SECOND)))
    plain = first._replace(about={**first.about, "task": "classification"})
    focal = second._replace(about={**second.about, "task": "focal"})
    with pytest.raises(UserError, match="task focal instead of classification"):
        compare_tables(plain, focal)
    with forgotten():
        register_task("focal", type("Focal", (Classification,), {}))
        assert compare_tables(plain, focal)["difference"] == compare_tables(first, second)["difference"]


def test_what_cannot_be_compared_is_refused_in_a_line(tmp_path):
    first = make_table(tmp_path / "a", "volumes", FIRST)
    with pytest.raises(UserError, match="task images instead of volumes"):
        compare_tables(first, make_table(tmp_path / "b", "images", SECOND))
    with pytest.raises(UserError, match=r"2 of 12 are only in the first, 2 of 12 only in the second \(such as y\)"):
        compare_tables(first, make_table(tmp_path / "c", "volumes", SECOND, names="abcdefghijyz"))
    with pytest.raises(UserError, match=r"1 of 12 are only in the first, 0 of 11 only in the second \(such as l\)"):
        compare_tables(first, make_table(tmp_path / "d", "volumes", SECOND, range(11)))
    short = make_table(tmp_path / "e", "volumes", FIRST, range(11))
    with pytest.raises(UserError, match=r"0 of 11 are only in the first, 1 of 12 only in the second \(such as l\)"):
        compare_tables(short, first)
    fewer = first._replace(about={**first.about, "classes": first.about["classes"][:-1]})
    number = len(first.about["classes"])
    with pytest.raises(UserError, match=f"{number - 1} classes instead of {number}"):
        compare_tables(first, fewer)
    other = dict(first.arrays, sums=first.arrays["sums"].copy())
    other["sums"][3, 0, 0] = 0
    with pytest.raises(UserError, match="1 of 12 samples have different labels, such as d"):
        compare_tables(first, first._replace(arrays=other))


def test_a_folder_without_a_table_and_one_that_is_damaged(tmp_path):
    with pytest.raises(UserError, match=r"EVALUATION.INTERVAL writes; to write one, run: paddlevit-dist evaluate /"):
        tables.read_table(str(tmp_path))
    with pytest.raises(UserError, match="does not exist"):
        tables.read_table(str(tmp_path / "gone"))
    make_table(tmp_path / "a", "images", FIRST)
    file = tmp_path / "a" / "scored_samples.npz"
    with np.load(file) as arrays:
        changed = {**arrays, "labels": arrays["labels"] + 100}
    np.savez_compressed(file, **changed)
    with pytest.raises(UserError, match="is damaged or from another version"):
        tables.read_table(str(tmp_path / "a"))
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(UserError, match="damaged"):
        tables.read_table(str(tmp_path / "a"))


def test_of_a_run_the_newer_table_is_taken(tmp_path):
    older = make_table(tmp_path / "a", "scenes", FIRST)
    newer = make_table(tmp_path / "b", "scenes", SECOND)
    (tmp_path / "a" / "scored_samples.npz").rename(tmp_path / "b" / "eval_scored_samples.npz")
    assert older.about["time"] < newer.about["time"] == tables.read_table(str(tmp_path / "b")).about["time"]
    assert tables.read_table(str(tmp_path / "b" / "eval_scored_samples.npz")).about["time"] == older.about["time"]


def test_fifty_thousand_images_take_less_than_a_megabyte(tmp_path):
    generator, metrics = np.random.default_rng(0), ClassificationMetrics(1000)
    labels = np.sort(generator.integers(0, 1000, 50_000)).astype(np.int32)
    columns = [labels, (generator.random(50_000) ** 8 * 100).astype(np.int32), generator.gamma(1, 1, 50_000)]
    columns[2] = columns[2].astype(np.float32)
    metrics.column_names = ["labels", "places", "losses"]
    numbers = generator.permutation(50_000)
    names = [f"val/n{1_440_764 + 7919 * label:08d}/ILSVRC2012_val_{n:08d}.JPEG" for label, n in zip(labels, numbers)]
    evaluation = SimpleNamespace(
        table=PerSampleResults(metrics, np.arange(50_000), columns),
        config=CfgNode({"TASK": "classification", "DATA": {"DATASET": "imagenet2012"}}),
        task=SimpleNamespace(best_metric=("top-1", True), signature=dict),
        samples=Named(names),
        facts={},
    )
    tables.write_evaluated(tmp_path / "intervals.json", evaluation, {"epoch": 1})
    assert (tmp_path / "scored_samples.npz").stat().st_size < 1_000_000
    assert tables.read_table(str(tmp_path)).names == names


def test_the_difference_of_each_landmark_s_rates_is_that_of_paired_shares(tmp_path):
    order = np.random.default_rng(4).permutation(SAMPLES)
    pair = TablePair.match(
        make_table(tmp_path / "a", "volumes", FIRST), make_table(tmp_path / "b", "volumes", SECOND, order)
    )
    intervals = pair.compute_intervals().difference
    errors = [
        np.array([np.random.default_rng([index, model]).gamma(2.0, 1.0, 3) for index in range(SAMPLES)])
        for model in (0, 1)
    ]
    for landmark, name in enumerate("abc"):
        for radius in RADII_MM:
            hits = [error[:, landmark] <= radius for error in errors]
            expected = paired_difference(*hits, 95)
            found = intervals[f"{name} {rate_name(radius)}"]
            assert (found.low, found.high) == pytest.approx((expected.low, expected.high)), (name, radius)


@pytest.mark.parametrize("kind", ["images", "boxes", "scenes"])
def test_classes_in_another_order_are_refused_and_renamed_ones_told(kind, tmp_path):
    first, second = (make_table(tmp_path / name, kind, [0] * SAMPLES) for name in ("first", "second"))
    names = list(first.about["classes"])
    turned = second._replace(about={**second.about, "classes": [names[1], names[0], *names[2:]]})
    with pytest.raises(UserError, match=rf"classes in another order \({names[1]} instead of {names[0]}\)"):
        TablePair.match(first, turned)
    renamed = second._replace(about={**second.about, "classes": ["new", *names[1:]]})
    TablePair.match(first, renamed)
    assert any(line.startswith("classes: ") for line in find_warnings(first, renamed))
