"""Thresholds of a run: where they are from, and what a score says of them."""

import json
import pickle
from types import SimpleNamespace

import numpy as np
import pytest
import yaml

from paddlevit_dist import UserError
from paddlevit_dist.core.checkpoint import store as checkpoint_store
from paddlevit_dist.core.checkpoint.model_record import read_record
from paddlevit_dist.core.settings import load
from paddlevit_dist.images.multi_label.metrics import LabelMetrics
from paddlevit_dist.images.multi_label.thresholds import LabelOutputs, LabelThresholds, find_thresholds

BEST = {"name": "mAP", "value": 0.5, "epoch": 1, "line": "mAP 0.5"}


@pytest.fixture
def weights(tmp_path):
    """A checkpoint whose evaluation chose thresholds of two of three classes for a recall of 0.8."""
    folder = tmp_path / "run" / "checkpoints" / "epoch_0001"
    folder.mkdir(parents=True)
    for name in ("model.pdparams", "state.json"):
        (folder / name).write_bytes(b"x")
    settings = {"MULTI_LABEL": {"THRESHOLDS": "recall", "WISHED": 0.8}}
    (folder / "about.yaml").write_text(yaml.safe_dump({"settings": settings}))
    np.savez(folder / "samples.npz", val=np.array([3, 4, 5], np.uint64))
    values = {"mAP": 0.5, "threshold hull": 0.25, "threshold wing": 0.75}
    checkpoint_store.write_evaluation(folder, BEST, [(1, 0.5)], values)
    return folder


def find(*words):
    return find_thresholds(load(["-cfg=multi_digits", "MULTI_LABEL.THRESHOLD", "0.4", *words]).values)


RECALL = ("MULTI_LABEL.THRESHOLDS", "recall", "MULTI_LABEL.WISHED", "0.8")


def samples(*identities):
    own = None if not identities else np.array(identities, np.uint64)
    return SimpleNamespace(identities=lambda: own, class_names=["wing", "hull", "antenna"])


def test_a_fixed_threshold_is_for_all_classes():
    found = find()
    assert found.levels(["a", "b"]).tolist() == [0.4, 0.4] and found.goal == ("none", 0.0)
    assert found.describe(samples(1)) == "threshold 0.4"


def test_weights_of_which_nothing_is_known_are_said_to_lack_thresholds(tmp_path):
    file = tmp_path / "bare.pdparams"
    file.write_bytes(b"x")
    found = find("-eval", f"-pretrained={file}")
    assert found.describe(samples(1)) == "threshold 0.4" and found.levels(["a"]).tolist() == [0.4]
    lost = f"{file} has no about.yaml with thresholds that its run may have chosen"
    assert found.notice == f"{lost}: labels are chosen above 0.4 for all classes"
    (tmp_path / "bare.pdparams.about.yaml").write_text("settings: {}\ntask: multi_label\n")
    assert find("-eval", f"-pretrained={file}").notice == ""


def test_a_training_run_computes_thresholds_and_scores_at_the_fixed_one():
    found = find(*RECALL)
    assert found == LabelThresholds(0.4, goal=("recall", 0.8)) and found.describe(samples(1)) == "threshold 0.4"


def test_an_evaluation_uses_the_thresholds_of_its_weights(weights):
    found = find("-eval", f"-pretrained={weights}", *RECALL)
    assert found.levels(["wing", "antenna", "hull"]).tolist() == [0.75, 0.4, 0.25] and found.goal == ("none", 0.0)
    text = "thresholds for recall 0.8 of the weights' run (0.4 for 1 of 3 classes: antenna)"
    assert found.describe(samples(6, 7)) == text
    assert found.describe(samples(3, 4, 5)) == f"{text}, chosen on these images"
    assert found.describe(samples(3, 9, 8)) == f"{text}, chosen on 1 of these images"
    assert found.describe(samples()) == f"{text}; whether they were chosen on these images is not known"


def test_only_three_classes_without_a_threshold_are_named(weights):
    found = find("-eval", f"-pretrained={weights}", *RECALL)
    many = SimpleNamespace(identities=lambda: np.array([9], np.uint64), class_names=["hull", *"abcd"])
    assert found.describe(many).endswith("run (0.4 for 4 of 5 classes: a, b, c, …)")
    three = SimpleNamespace(identities=lambda: np.array([9], np.uint64), class_names=["hull", *"abc"])
    assert found.describe(three).endswith("run (0.4 for 3 of 4 classes: a, b, c)")


def test_workers_get_thresholds_without_the_list_of_images(weights):
    task = SimpleNamespace(config=load(["-cfg=multi_digits", "-eval", f"-pretrained={weights}", *RECALL]).values)
    outputs = LabelOutputs(task)
    assert outputs.thresholds.images is not None
    copy = pickle.loads(pickle.dumps(outputs))
    assert copy.thresholds == outputs.thresholds._replace(images=None)


def test_a_training_run_that_starts_from_weights_does_not_take_their_thresholds(weights):
    found = find(f"-pretrained={weights}", *RECALL, "MULTI_LABEL.THRESHOLDS_OF", str(weights))
    assert found == LabelThresholds(0.4, goal=("recall", 0.8))


def test_thresholds_for_the_highest_f1_are_told_as_such(weights):
    goal = {"MULTI_LABEL": {"THRESHOLDS": "f1", "WISHED": 0.3}}
    (weights / "about.yaml").write_text(yaml.safe_dump({"settings": goal}))
    found = find("-eval", f"-pretrained={weights}", "MULTI_LABEL.THRESHOLDS", "f1")
    assert found.source == "for the highest F1 of the weights' run" and found.chosen == {"hull": 0.25, "wing": 0.75}


def test_a_named_recipe_drops_no_thresholds_of_the_model(weights, tmp_path):
    exported = tmp_path / "tags.onnx"
    exported.touch()
    goal = {"MULTI_LABEL.THRESHOLDS": "recall", "MULTI_LABEL.WISHED": 0.8}
    about = {"thresholds": {"wing": 0.7}, "thresholds_settings": goal}
    (tmp_path / "tags.about.yaml").write_text(yaml.safe_dump(about))
    for words, chosen in (
        ((f"-pretrained={weights}",), {"hull": 0.25, "wing": 0.75}),
        (("-pretrained=none", f"EXPORTED={exported}"), {"wing": 0.7}),
    ):
        loaded = load(["-cfg=multi_digits", "-eval", *words])
        assert find_thresholds(loaded.values).chosen == chosen
        assert not [line for line in loaded.notices if "THRESHOLD" in line]
        single = load(["-cfg=multi_digits", "-eval", *words, "MULTI_LABEL.THRESHOLD", "0.9"])
        assert find_thresholds(single.values).chosen == chosen
        (line,) = [line for line in single.notices if "THRESHOLD" in line]
        assert line.startswith("MULTI_LABEL.THRESHOLD 0.9 (") and f"no effect on the {len(chosen)} classes" in line
        fixed = load(["-cfg=multi_digits", "-eval", *words, "MULTI_LABEL.THRESHOLDS", "fixed"])
        assert find_thresholds(fixed.values) == LabelThresholds(0.5)
        (line,) = [line for line in fixed.notices if "THRESHOLD" in line]
        assert line.startswith("MULTI_LABEL.THRESHOLDS fixed (") and line.endswith("not used, but 0.5 for all classes")


def test_thresholds_for_another_goal_are_not_used(weights):
    found = find("-eval", f"-pretrained={weights}", *RECALL[:3], "0.9")
    assert not found.chosen and found.goal == ("recall", 0.9)
    (weights / "evaluation.json").unlink()
    assert find("-eval", f"-pretrained={weights}", *RECALL).goal == ("recall", 0.8)


def test_the_thresholds_of_another_evaluation_can_be_used(weights, tmp_path):
    content = {"values": {"threshold wing": {"value": 0.6, "low": 0.5, "high": 0.7}, "mAP": {"value": 0.5}}}
    file = tmp_path / "chosen" / "eval_intervals.json"
    file.parent.mkdir()
    file.write_text(json.dumps(content))
    found = find("-eval", f"-pretrained={weights}", *RECALL, "MULTI_LABEL.THRESHOLDS_OF", str(file.parent))
    assert found.chosen == {"wing": 0.6} and found.source == f"of {file.parent}"
    file.write_text(json.dumps({"values": {"mAP": {"value": 0.5}}}))
    with pytest.raises(UserError, match="eval_intervals.json has no thresholds: set MULTI_LABEL.THRESHOLDS in it"):
        find("-eval", f"-pretrained={weights}", "MULTI_LABEL.THRESHOLDS_OF", str(file.parent))
    file.write_text("{}")
    with pytest.raises(UserError, match="eval_intervals.json has no thresholds"):
        find("-eval", f"-pretrained={weights}", "MULTI_LABEL.THRESHOLDS_OF", str(file.parent))
    with pytest.raises(UserError, match="it has no eval_intervals.json: name the -output of an evaluation"):
        find("-eval", f"-pretrained={weights}", "MULTI_LABEL.THRESHOLDS_OF", str(tmp_path))


def test_thresholds_that_were_chosen_under_other_settings_are_chosen_again_or_refused(weights, tmp_path):
    views = ("DATA.TEST_VIEWS", "[mirrored]")
    about = {**yaml.safe_load((weights / "about.yaml").read_text())}
    settings = {"IMAGE_SIZE": 32, "TEST_VIEWS": []}
    about["settings"]["DATA"] = settings
    (weights / "about.yaml").write_text(yaml.safe_dump(about))
    words = ("-eval", f"-pretrained={weights}", *RECALL)
    assert find(*words, "DATA.IMAGE_SIZE", "32").chosen == {"hull": 0.25, "wing": 0.75}
    found = find(*words, "DATA.IMAGE_SIZE", "32", *views)
    assert not found.chosen and found.goal == ("recall", 0.8)
    assert found.describe(samples(1)) == (
        "threshold 0.4; the thresholds for recall 0.8 of the weights' run were chosen with DATA.TEST_VIEWS [] (here "
        "['mirrored'])"
    )
    with pytest.raises(UserError, match=r"DATA.IMAGE_SIZE 32 \(here 28\): evaluate with these settings, and name its"):
        find(*words, "DATA.IMAGE_SIZE", "28").require_fit()
    (tmp_path / "eval_intervals.json").write_text(json.dumps({"values": {"threshold wing": {"value": 0.6}}}))
    (tmp_path / "eval_config.yaml").write_text(yaml.safe_dump({"DATA": {"TEST_VIEWS": ["mirrored"]}}))
    chosen = (*words, "MULTI_LABEL.THRESHOLDS_OF", str(tmp_path))
    assert find(*chosen, *views).chosen == {"wing": 0.6}
    with pytest.raises(UserError, match=r"chosen with DATA.TEST_VIEWS \['mirrored'\] \(here \[\]\): evaluate"):
        find(*chosen)


def test_an_export_is_evaluated_at_the_thresholds_of_its_description(tmp_path):
    about = tmp_path / "tags.about.yaml"
    about.write_text(yaml.safe_dump({"thresholds": {"wing": 0.7}, "thresholds_settings": {"DATA.TEST_VIEWS": []}}))
    for name in ("tags.onnx", "other.onnx"):
        (tmp_path / name).touch()
    found = find("-eval", "-pretrained=none", *RECALL, "EXPORTED", str(tmp_path / "tags.onnx"))
    assert found.chosen == {"wing": 0.7} and found.source == f"of {tmp_path}/tags.about.yaml"
    assert not find("-eval", "-pretrained=none", *RECALL, "EXPORTED", str(tmp_path / "other.onnx")).chosen
    viewed = (*RECALL, "EXPORTED", str(tmp_path / "tags.onnx"), "DATA.TEST_VIEWS", "[mirrored]")
    assert "were chosen with DATA.TEST_VIEWS [] (here" in find("-eval", "-pretrained=none", *viewed).unfit
    for value in ("much", 1.5, None):
        about.write_text(yaml.safe_dump({"thresholds": {"wing": 0.7, "hull": value}}))
        with pytest.raises(
            UserError,
            match=r"^\S+tags.about.yaml: Expected `float`.* `\$.thresholds\[\.\.\.\]`; export the model again",
        ):
            find("-eval", "-pretrained=none", *RECALL, "EXPORTED", str(tmp_path / "tags.onnx"))


def test_converted_weights_keep_their_thresholds_and_a_copy_without_them_says_so(weights, tmp_path):
    settings = yaml.safe_load((weights / "about.yaml").read_text())["settings"]
    record = read_record(weights)
    file, about = tmp_path / "new.pdparams", tmp_path / "new.pdparams.about.yaml"
    file.write_bytes(b"x")
    about.write_text(yaml.safe_dump({"settings": settings, **record.describe_choices()}))
    found = find("-eval", f"-pretrained={file}", *RECALL)
    assert found.chosen == {"hull": 0.25, "wing": 0.75} and found.notice == found.lost == ""
    other = find("-eval", f"-pretrained={file}", "MULTI_LABEL.THRESHOLDS", "f1")
    with pytest.raises(UserError, match=r"were chosen with MULTI_LABEL.THRESHOLDS recall \(here f1\)"):
        other.require_fit()
    about.write_text(yaml.safe_dump({"settings": settings}))
    found = find("-eval", f"-pretrained={file}", *RECALL)
    lost = (
        f"{file} has no thresholds for recall 0.8 (a copy needs the run's evaluation.json next to it, and convert and"
    )
    assert found.notice.startswith(f"MULTI_LABEL.THRESHOLDS recall: {lost}")
    assert found.notice.endswith(": labels are chosen above 0.4 for all classes")
    assert found.describe(samples(1)).startswith(f"threshold 0.4; {lost}")
    found = find("-eval", f"-pretrained={file}", "MULTI_LABEL.THRESHOLDS", "f1")  # its run has chosen none
    assert found.describe(samples(1)) == "threshold 0.4" and "none were chosen for the weights" in found.notice


def test_an_exported_file_has_thresholds_of_its_own_beside_other_weights(weights, tmp_path):
    (tmp_path / "tags.onnx").touch()
    about = tmp_path / "tags.about.yaml"
    words = ("-eval", f"-pretrained={weights}", *RECALL, "EXPORTED", str(tmp_path / "tags.onnx"))
    about.write_text(yaml.safe_dump({"thresholds": {"wing": 0.6}}))
    assert find(*words).chosen == {"wing": 0.6}
    about.write_text(yaml.safe_dump({"thresholds": {"hull": 0.25, "wing": 0.75}}))
    assert find(*words).images is not None  # of the weights, which chose the same


def test_renamed_classes_keep_their_thresholds(weights):
    found = find("-eval", f"-pretrained={weights}", *RECALL).renamed({"Flügel": "wing", "Antenne": "antenna"})
    assert found.levels(["Flügel", "Antenne"]).tolist() == [0.75, 0.4]


def test_labels_above_their_thresholds_are_chosen():
    metrics = LabelMetrics(["wing", "hull"], np.array([0.5, 0.9]))
    metrics.add_batch(labels=np.zeros((2, 2), np.int8), logits=np.array([[0.0, 2.0], [0.1, 3.0]], np.float32))
    assert metrics.rows()["chosen"].tolist() == [[False, False], [True, True]]
    assert LabelMetrics(["wing"], np.array([0.5])).rows() == {}
