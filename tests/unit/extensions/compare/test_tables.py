"""What the file of an evaluation's samples contains, and what is refused of a changed one."""

import hashlib
import json
from pathlib import PurePosixPath
from types import SimpleNamespace

import numpy as np
import pytest
from support.refusals import refusal_of
from yacs.config import CfgNode

from paddlevit_dist import UserError
from paddlevit_dist.core.tasks.metrics import SampleTable
from paddlevit_dist.core.tasks.sample_groups import SampleGroups
from paddlevit_dist.core.tasks.score_report import ResultSource, ScoreReport
from paddlevit_dist.extensions.compare import run_settings, tables
from paddlevit_dist.images import ImageSegmentation

ARRAYS = {
    "labels": np.array([0, 1, 1], np.int32),
    "places": np.array([0, 2, 0], np.int32),
    "losses": np.ones(3, np.float32),
    "top": np.array([1, 5]),
}


def write(folder, facts, groups=None, name="intervals.json", **others) -> None:
    config = CfgNode({"TASK": "classification", "DATA": {"DATASET": "digits"}, "SEED": 3, "TRAIN": {"TF32": False}})
    table = SimpleNamespace(indices=np.array([5, 3, 9]), groups=groups)
    table.to_sample_table = lambda: SampleTable("classes", ["a", 2, "c"], ARRAYS)
    evaluation = SimpleNamespace(
        table=table,
        config=config,
        task=SimpleNamespace(best_metric=("top-1", True), signature=lambda: {"DATA.IMAGE_SIZE": 8}),
        samples=SimpleNamespace(name="image {}".format),
        facts={"precision": "half"},
    )
    vars(evaluation).update(others)
    tables.write_evaluated(folder / name, evaluation, facts)


def read_about(file) -> dict:
    with np.load(file) as arrays:
        return json.loads(arrays["about"].tobytes())


ABOUT = {
    **{"format": 1, "digest": hashlib.sha256(b"image 5\0image 3\0image 9").hexdigest()},
    **{"task": "classification", "kind": "classes", "score": "top-1", "more_is_better": True},
    **{"classes": ["a", "2", "c"], "split": "val", "dataset": "digits", "of": "epoch 4"},
    **{"protocol": {"precision": "half", "TRAIN.TF32": False}, "input": {"DATA.IMAGE_SIZE": 8}},
}


def test_a_file_has_all_that_scores_depend_on(tmp_path):
    write(tmp_path, {"epoch": 4})
    about = read_about(tmp_path / "scored_samples.npz")
    assert about.pop("time") > 1.7e9 and about == ABOUT
    groups = SampleGroups("video", np.array(["v", "wé", "v"]), "file")
    write(tmp_path, {"weights": "w", "split": "test"}, groups, "eval_intervals.json")
    file = tmp_path / "eval_scored_samples.npz"
    about = read_about(file)
    assert about.pop("time") > 1.7e9 and about == {**ABOUT, "of": "w", "split": "test", "group": "video"}
    table = tables.read_table(str(file))
    assert (table.run, table.names, table.file) == (str(file), ["image 5", "image 3", "image 9"], file)
    assert (table.groups.by, table.groups.names.tolist(), table.groups.source) == ("video", ["v", "wé", "v"], str(file))
    assert table.arrays.keys() == ARRAYS.keys() and all((table.arrays[name] == ARRAYS[name]).all() for name in ARRAYS)
    with np.load(file) as arrays:
        assert arrays["indices"].tolist() == [5, 3, 9] and arrays["indices"].dtype == np.int32


@pytest.mark.parametrize(
    ("known", "expected"),
    [(["loss"], ("loss", False)), (["cross_entropy"], ("cross_entropy", False)), (["accuracy"], ("mIoU", True))],
)
def test_a_loss_that_samples_do_not_have_is_compared_by_what_they_have(tmp_path, known, expected):
    own = type("Own", (ImageSegmentation,), {"best_metric": ("loss", False), "signature": lambda self: {}})
    write(tmp_path, {"epoch": 4}, task=object.__new__(own), intervals=dict.fromkeys(known))
    about = read_about(tmp_path / "scored_samples.npz")
    assert (about["score"], about["more_is_better"]) == expected


def test_facts_of_own_tasks_that_json_does_not_know_are_written_as_text(tmp_path):
    about = {"input": {"crop": np.float32(0.5), "lines": PurePosixPath("a/b")}, "time": "own"}
    tables.write_table(tmp_path / "t.npz", about, ["x"], {}, None)
    assert read_about(tmp_path / "t.npz")["input"] == {"crop": "0.5", "lines": "a/b"}


def test_results_of_another_program_have_the_same_form(tmp_path):
    shown, origin = {"top-1": 2, "loss": 1}, ResultSource(split="test", dataset="labels")
    facts = {"task": "classification", "kind": "classes", "arrays": ARRAYS, "more_is_better": False, "origin": origin}
    report = ScoreReport("", ["x", "y", "z"], "image", shown, ("a", "b", "c"), ["p"], [], **facts)
    tables.write_scored(tmp_path / "t.npz", report, "r.csv", SampleGroups("video", np.array(["v", "w", "v"]), "file"))
    about = read_about(tmp_path / "t.npz")
    assert about.pop("time") > 1.7e9 and about == {
        **{**ABOUT, "classes": ["a", "b", "c"], "split": "test", "dataset": "labels", "more_is_better": False},
        **{"of": "results r.csv", "digest": hashlib.sha256(b"x\0y\0z").hexdigest(), "group": "video"},
        **{"protocol": {}, "input": {}},
    }
    with np.load(tmp_path / "t.npz") as arrays:
        assert arrays["indices"].tolist() == [0, 1, 2] and arrays["indices"].dtype == np.int32
    table = tables.read_table(str(tmp_path / "t.npz"))
    assert table.names == ["x", "y", "z"] and table.groups.number() == 2 and table.arrays.keys() == ARRAYS.keys()


@pytest.mark.parametrize(
    "changes",
    [
        *({name: 3} for name in ("task", "score", "split", "dataset", "of", "digest", "classes", "protocol", "input")),
        *({"format": 2}, {"time": "x"}, {"time": None}, {"kind": []}, {"classes": "abc"}),
    ],
    ids=str,
)
def test_a_file_with_another_form_is_damaged(tmp_path, changes):
    write(tmp_path, {"epoch": 4})
    file = tmp_path / "scored_samples.npz"
    with np.load(file) as arrays:
        content = dict(arrays)
    about = json.dumps({**json.loads(content["about"].tobytes()), **changes}).encode()
    np.savez(file, **{**content, "about": np.frombuffer(about, np.uint8)})
    with pytest.raises(
        UserError, match=f"^compare: {file} is damaged or from another version; evaluate the run again$"
    ):
        tables.read_table(str(tmp_path))


def test_arrays_with_fewer_dimensions_are_damaged(tmp_path):
    write(tmp_path, {"epoch": 4})
    file = tmp_path / "scored_samples.npz"
    with np.load(file) as arrays:
        content = dict(arrays)
    columns = "ids image_ids counts num_true labels scores true_positives ignored annotated totals".split()
    about = np.frombuffer(json.dumps({**json.loads(content["about"].tobytes()), "kind": "boxes"}).encode(), np.uint8)
    np.savez(file, **{**content, **dict.fromkeys(columns, np.int32(0)), "about": about})
    assert refusal_of(tables.read_table, str(tmp_path)) == (
        f"compare: {file} is damaged or from another version, or its metrics do not write what the kind 'boxes' has; "
        "evaluate the run again"
    )


@pytest.mark.parametrize(("name", "text"), [("names", b"a\0b"), ("groups", b"v\0w"), ("indices", None)])
def test_a_file_with_other_numbers_of_samples_is_damaged(tmp_path, name, text):
    write(tmp_path, {"epoch": 4}, SampleGroups("video", np.array(["v", "w", "v"]), "file"))
    file = tmp_path / "scored_samples.npz"
    with np.load(file) as arrays:
        content = dict(arrays)
    content[name] = np.arange(2) if text is None else np.frombuffer(text, np.uint8)
    np.savez(file, **content)
    with pytest.raises(UserError, match="is damaged or from another version"):
        tables.read_table(str(tmp_path))


def test_settings_are_those_of_the_training_of_the_weights(tmp_path):
    (tmp_path / "run" / "checkpoints" / "best").mkdir(parents=True)
    write(tmp_path / "run", {"epoch": 4})
    of, run = tables.read_table(str(tmp_path / "run")).about["of"], tmp_path / "run"
    assert run_settings.load_training_settings(of, run) == {}
    (tmp_path / "run" / "config.yaml").write_text("SEED: 7\n")
    best = str(tmp_path / "run" / "checkpoints" / "best")
    for of, settings in (("epoch 4", {"SEED": 7}), (best, {"SEED": 7}), (f"{best}er", {}), ("results r.csv", {})):
        assert run_settings.load_training_settings(of, run) == settings
    (tmp_path / "copied").mkdir()
    for name in ("w.pdparams", "state.json"):  # a checkpoint without the folder of its run
        (tmp_path / "copied" / name).touch()
    (tmp_path / "copied" / "about.yaml").write_text("settings: {SEED: 9}\n")
    for of in (tmp_path / "copied", tmp_path / "copied" / "w.pdparams"):
        assert run_settings.load_training_settings(str(of), run) == {"SEED": 9}
    (tmp_path / "run" / "config.yaml").write_text("SEED: [\n")
    assert run_settings.load_run_settings(tmp_path / "run") == run_settings.load_run_settings(tmp_path / "absent") == {}


def test_settings_that_differ_are_those_of_both_that_change_scores():
    model = {"NAME": "vit", "PRETRAINED": "a", "RESUME": "x"}
    first = {"TASK": "classification", "SAVE": "a", "SEED": 1, "TRAIN": {"TF32": True}, "MODEL": model, "OWN": 1}
    second = {**first, "SAVE": "b", "SEED": 2, "TRAIN": {"TF32": False, "SMOOTHING": 0.1}, "OWN": 2}
    second["MODEL"] = {"NAME": "resnet", "PRETRAINED": "b", "RESUME": "y"}
    differing = {
        "SEED": [1, 2],
        "TRAIN.TF32": [True, False],
        "MODEL.NAME": ["vit", "resnet"],
        "MODEL.PRETRAINED": ["a", "b"],
    }
    assert run_settings.find_differing_settings(first, second) == differing
    del differing["TRAIN.TF32"]
    assert run_settings.find_differing_settings(first, second, ("score",)) == differing
    assert list(run_settings.find_differing_settings(second, first, ("score", "network"))) == [
        "SEED",
        "MODEL.PRETRAINED",
    ]


def test_where_a_run_begins_counts_and_on_which_machine_it_runs_does_not():
    first = {"TASK": "detection", "SAVE": "a", "GPU_KERNELS": True, "NGPUS": 1, "MODEL": {"BACKBONE_PRETRAINED": "x"}}
    second = {"TASK": "detection", "SAVE": "b", "GPU_KERNELS": False, "NGPUS": 2, "MODEL": {"BACKBONE_PRETRAINED": "y"}}
    assert run_settings.find_differing_settings(first, second) == {"MODEL.BACKBONE_PRETRAINED": ["x", "y"]}
