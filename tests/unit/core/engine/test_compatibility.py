"""What a checkpoint says about its input, against how the run that loads it prepares samples."""

from types import SimpleNamespace

import pytest
import yaml
from support.refusals import refusal_of
from support.registrations import forgotten

from paddlevit_dist import UserError, register_task
from paddlevit_dist.core.engine import compatibility
from paddlevit_dist.core.engine.compatibility import CheckpointDiff, compare, facts_from_settings, to_plain_settings
from paddlevit_dist.core.settings import load
from paddlevit_dist.core.tasks.task import Task
from paddlevit_dist.images import Classification

CONFIG = load([]).values


class Turned(Task):
    def signature(self):
        return {"orientation": "RAS", "spacing": (1.0, 2.0)}


@pytest.fixture
def checkpoint(tmp_path):
    """``checkpoint(content)`` writes a folder that looks like one, with this ``about.yaml``."""

    def write(content):
        (tmp_path / "state.json").write_text("{}")
        if content is not None:
            (tmp_path / "about.yaml").write_text(content if isinstance(content, str) else yaml.safe_dump(content))
        return str(tmp_path)

    return write


def compared(source, config, use="evaluate"):
    return CheckpointDiff(use, source, config, Turned(config)).input()


def compared_settings(source, config, use="evaluate"):
    return CheckpointDiff(use, source, config, Task(config)).settings()


def compared_classes(source, config, facts):
    return CheckpointDiff("evaluate", source, config, Counted(facts)).classes(None)


@pytest.mark.parametrize("content", [None, {}, {"input": {}}, {"input": None}])
def test_a_checkpoint_without_a_description_is_told(checkpoint, content):
    (unchecked,) = compared(checkpoint(content), CONFIG)
    assert "cannot be compared" in unchecked


def test_equal_input_is_silent_also_as_lists_and_with_further_names(checkpoint):
    source = checkpoint({"input": {"orientation": "RAS", "spacing": [1.0, 2.0], "of another version": 3}})
    assert compared(source, CONFIG) == []
    assert compared(source + "/model", CONFIG) == []


def test_other_input_is_an_error_that_shows_both_sides_or_a_note(checkpoint):
    source = checkpoint({"input": {"orientation": "LPS", "spacing": [1.0, 2.0]}})
    for use in ("evaluate", "resume"):
        with pytest.raises(UserError, match="orientation LPS there, RAS here; .*-allow_changes"):
            compared(source, CONFIG, use)
    for config, use in ((load(["-allow_changes"]).values, "evaluate"), (CONFIG, "start")):
        (note,) = compared(source, config, use)
        assert "orientation LPS there, RAS here" in note


@pytest.mark.parametrize(("words", "is_offered"), [([], False), (["DATA.EXIF_ROTATE", "true"], True)])
def test_a_command_with_the_settings_of_the_run_is_offered_only_if_they_differ(words, is_offered, tmp_path):
    folder = tmp_path / "run" / "checkpoints" / "best"
    folder.mkdir(parents=True)
    for name in ("config.yaml", "run.json", "checkpoints/best/state.json"):
        (tmp_path / "run" / name).write_text("{}")
    said = {"input": {"orientation": "LPS"}, "settings": to_plain_settings(load([]).values)}
    (folder / "about.yaml").write_text(yaml.safe_dump(said))
    line = refusal_of(compared, str(folder), load([f"-pretrained={folder}", *words]).values)
    assert "orientation LPS there, RAS here; " in line and "or add -allow_changes" in line
    assert ("with the settings of its run: " in line) is is_offered


def test_weights_from_elsewhere_are_not_compared(tmp_path):
    assert compared(str(tmp_path / "weights.pth"), CONFIG) == []


@pytest.mark.parametrize("name", ["w.safetensors.about.yaml", "w.about.yaml", "about.yaml"])
def test_a_description_next_to_weights_counts_as_a_checkpoints(tmp_path, name):
    (tmp_path / "w.safetensors").write_bytes(b"")
    assert compared(str(tmp_path / "w.safetensors"), CONFIG) == []
    (tmp_path / name).write_text(yaml.safe_dump({"input": {"orientation": "LPS"}}))
    with pytest.raises(UserError, match="orientation LPS there, RAS here"):
        compared(str(tmp_path / "w.safetensors"), CONFIG)
    (tmp_path / name).write_text(yaml.safe_dump({"data": {"weights": {"classes": ["a"]}}}))
    (note,) = compared(str(tmp_path / "w.safetensors"), CONFIG)
    assert "w.safetensors does not store its preprocessing (mean, deviation, ...)" in note
    (tmp_path / name).write_text("- a")
    with pytest.raises(UserError, match="about.yaml"):
        compared(str(tmp_path / "w.safetensors"), CONFIG)


@pytest.mark.parametrize("content", ["[1, 2", "- a\n- b", "a: !!python/object/apply:os.getcwd []"])
def test_a_damaged_description_is_named(checkpoint, content):
    with pytest.raises(UserError, match="about.yaml"):
        compared(checkpoint(content), CONFIG)


@pytest.mark.parametrize(
    ("recipe", "there", "here", "said"),
    [
        ("vit_digits", [], ["MODEL.NUM_HEADS", "2"], "MODEL.NUM_HEADS 4 there, 2 here"),
        ("vit_digits", [], ["MODEL.DEPTH", "2"], "MODEL.DEPTH"),
        ("detr_r50_coco", [], ["MODEL.NAME", "detr_resnet50_dc5"], "detr_resnet50 there, detr_resnet50_dc5 here"),
        ("detr_r50_coco", ["MODEL.NUM_QUERIES", "50"], [], "MODEL.NUM_QUERIES 50 there"),
        ("landmark_unet3d", [], ["VOLUMES.UNET_DEPTH", "2"], "VOLUMES.UNET_DEPTH"),
    ],
)
def test_an_evaluation_has_the_network_of_the_run(checkpoint, recipe, there, here, said):
    """Of as many heads or fewer layers all shapes fit, and the score is another."""
    before, now = load([f"-cfg={recipe}", *there]).values, load([f"-cfg={recipe}", *here]).values
    source = checkpoint({"input": {}, "settings": to_plain_settings(before)})
    with pytest.raises(UserError, match=f"is of another network: .*{said}.*-allow_changes"):
        compared_settings(source, now)
    assert said in compared_settings(source, now, "start")[0]
    allowed = load([f"-cfg={recipe}", *here, "-allow_changes"]).values
    assert said in compared_settings(source, allowed)[0]


def test_a_users_task_takes_weights_of_the_task_that_it_is_derived_from(checkpoint):
    class Focal(Classification):
        pass

    stored = to_plain_settings(load(["-cfg=vit_digits"]).values)
    with forgotten():
        register_task("focal", Focal)
        config = load(["-cfg=vit_digits", "TASK", "focal"]).values
        fits = CheckpointDiff("evaluate", checkpoint({"settings": stored}), config, Focal(config)).settings()
        assert fits == []
        for task in ("of_nobody", "multi_label"):
            source = checkpoint({"settings": {**stored, "TASK": task}})
            with pytest.raises(UserError, match=f"TASK {task} there, focal here"):
                CheckpointDiff("evaluate", source, config, Focal(config)).settings()


def test_what_no_score_depends_on_is_not_compared_and_ways_of_evaluating_are_told(checkpoint):
    before = load(["-cfg=minkunet14_synthetic_rooms"]).values
    source = checkpoint({"input": {}, "settings": to_plain_settings(before)})
    words = ["-cfg=minkunet14_synthetic_rooms", "-eval", "-pretrained=x", "-batch_size=3", "-seed=9", "-ngpus=2"]
    assert compared_settings(source, load(words).values) == []
    (note,) = compared_settings(source, load([*words, "POINTS.TEST_ROTATIONS", "4"]).values)
    assert "was evaluated with different settings during training: POINTS.TEST_ROTATIONS 1 there, 4 here" in note
    (note,) = compared_settings(source, load([*words, "TRAIN.TF32", "False"]).values)
    assert "was evaluated with different settings during training: TRAIN.TF32 True there, False here" in note
    digits = load(["-cfg=vit_digits", "MODEL.DROPPATH", "0.3", "MODEL.NUM_CLASSES", "10"]).values
    source = checkpoint({"input": {}, "settings": to_plain_settings(digits)})
    assert compared_settings(source, load(["-cfg=vit_digits", "-eval", "-pretrained=x"]).values) == []
    assert compared_settings("weights.pth", digits) == []


class Counted(Task):
    def __init__(self, facts):
        super().__init__(CONFIG)
        self.facts = facts

    def signature(self, samples):
        return self.facts


@pytest.mark.parametrize(
    ("there", "here", "said"),
    [
        ({"number of classes": 6}, {"number of classes": 4, "classes": list("abcd")}, "6 classes there, 4 here"),
        (
            {"number of classes": 2, "classes": ["a", "b"]},
            {"number of classes": 2, "classes": ["b", "a"]},
            "class 0: a",
        ),
        ({"samples": 3}, {"number of classes": 4}, None),
        ({"classes": ["b", "a"]}, {"classes": ["b", "a"]}, None),
    ],
)
def test_classes_are_compared_by_name_where_both_have_names_else_by_number(checkpoint, there, here, said):
    source = checkpoint({"data": {"test": None, "train": {"samples": 10}, "val": there}})
    if said is None:
        assert compared_classes(source, CONFIG, here) == []
        return
    with pytest.raises(UserError, match=said):
        compared_classes(source, CONFIG, here)
    (note,) = compared_classes(source, SimpleNamespace(ALLOW_CHANGES=True), here)
    assert said in note


@pytest.mark.parametrize("source", ["weights.pth", "checkpoint of another program"])
def test_weights_that_do_not_name_their_classes_are_told_beside_the_score(tmp_path, source):
    (note,) = compared_classes(str(tmp_path / source), CONFIG, {"classes": ["ant", "bee"]})
    assert "classes unknown: " in note and "does not name its 2 classes" in note and "(ant, bee)" in note
    assert compared_classes(str(tmp_path / source), CONFIG, {"number of classes": 2}) == []


def test_data_that_do_not_name_their_classes_are_told_beside_the_score(checkpoint):
    source = checkpoint({"data": {"val": {"number of classes": 2, "classes": ["ant", "bee"]}}})
    (note,) = compared_classes(source, CONFIG, {"number of classes": 2})
    assert note.startswith("note: classes unknown: the data do not name theirs") and note.endswith(
        "in order (ant, bee)"
    )
    with pytest.raises(UserError, match="2 classes there, 3 here"):
        compared_classes(source, CONFIG, {"number of classes": 3})


def test_precision_alters_a_training_and_is_read_by_evaluations():
    before = {"TRAIN": {"TF32": True, "BUCKET_MEGABYTES": 25}, "DETERMINISTIC": False, "NGPUS": 1, "SAVE": "a"}
    now = {"TRAIN": {"TF32": False, "BUCKET_MEGABYTES": 9}, "DETERMINISTIC": True, "NGPUS": 2, "SAVE": "b"}
    altering = {
        change.name: change.alters
        for change in compare("resume", facts_from_settings(before), facts_from_settings(now))
    }
    neutral = dict.fromkeys(("TRAIN.BUCKET_MEGABYTES", "DETERMINISTIC", "NGPUS"), False)
    assert altering == {"TRAIN.TF32": True, **neutral}  # SAVE belongs to one start
    read = load(["-eval", "-pretrained=x", "TRAIN.TF32", "False", "DETERMINISTIC", "True"])
    assert read.values.TRAIN.TF32 is False and not [line for line in read.notices if "no effect" in line]


@pytest.mark.parametrize(
    "theirs, ours, told",
    [
        ("abc", "abc", ""),
        ("abc", "axc", "class 1: b there, x here"),
        ("abcd", "xyzd", "class 0: a there, x here; 1: b there, y here; 2: c there, z here"),
        ("abcde", "vwxyz", "class 0: a there, v here; 1: b there, w here; 2: c there, x here and 2 more"),
        ("abcd", "wxyz", "class 0: a there, w here; 1: b there, x here; 2: c there, y here and 1 more"),
        ("ab", "abc", "2 classes there, 3 here"),
    ],
)
def test_three_classes_are_named_that_differ(theirs, ours, told):
    assert compatibility.list_other_names(list(theirs), list(ours)) == told


@pytest.mark.parametrize("random, number", [((True, False), 1), ((False, True), 1), ((False, False), 0)])
def test_without_lists_a_split_that_was_drawn_may_be_another(checkpoint, random, number):
    diff = CheckpointDiff("resume", checkpoint({}), CONFIG, Task(CONFIG))
    splits = {name: SimpleNamespace(is_random_split=drawn) for name, drawn in zip(("train", "val"), random)}
    told = ("train and val files", "not listed", "split again: val may contain training samples", "files")
    assert [change[:4] for change in diff.changed_files(splits)] == [told] * number
