"""What tasks with a backbone make of classes, options, weights and learning rates."""

import contextlib
from types import SimpleNamespace

import numpy as np
import paddle
import pytest
from paddle import nn
from support.files.label_map_layouts import yolo_outlines
from support.processes import ROOT

from paddlevit_dist import UserError
from paddlevit_dist.core.engine.optimizer import complete_groups
from paddlevit_dist.core.settings import load
from paddlevit_dist.core.tasks.aspects import get_aspect
from paddlevit_dist.core.tasks.model import Model
from paddlevit_dist.core.tasks.prediction import CheckpointMeta
from paddlevit_dist.core.tasks.protocols import ModelChecking, ParameterGrouping, Recomputable
from paddlevit_dist.images.detection.task import Detection
from paddlevit_dist.images.segmentation.task import ImageSegmentation

WORDS = ["TASK", "segmentation", "MODEL.NAME", "upernet_swin_tiny", "-dataset=label_maps", "-data_path=x"]


def make(*words):
    return ImageSegmentation(load([*WORDS, *words]).values)


def test_classes_have_the_names_of_all_splits_and_of_weights(refuse):
    task = make()
    task._take_classes(["a", "b"])
    assert (task.class_names, task.num_classes) == (["a", "b"], 2)
    said = refuse(task._take_classes, ["a", "c"])
    assert "training and validation data name different classes: a, b and a, c; give both" in said
    more = make("-num_classes=4")
    more._take_classes(["a", "b"])
    assert (more.class_names, more.num_classes) == (["a", "b", "2", "3"], 4)
    more._take_classes(["a", "b"])
    for meta, expected in (
        (CheckpointMeta(3, ("x", "y", "z", "w")), ["x", "y", "z"]),
        (CheckpointMeta(3, ("x",)), ["x", "1", "2"]),
        (CheckpointMeta(2), ["0", "1"]),
    ):
        task.load_meta(meta)
        assert (task.class_names, task.num_classes) == (expected, len(expected))
    task.load_meta(CheckpointMeta(None, ("q",)))
    assert task.num_classes == 2


@pytest.mark.parametrize(
    "word, data, turns",
    [
        ("true", {"turned by EXIF": False}, True),
        ("false", {"turned by EXIF": True}, False),
        (None, {"turned by EXIF": True}, True),
        (None, {}, False),
        (None, None, False),
    ],
)
def test_images_are_turned_as_in_training_unless_set(word, data, turns):
    task = make()
    config = SimpleNamespace(DATA=SimpleNamespace(EXIF_ROTATE={"true": True, "false": False, None: None}[word]))
    task.config = config
    if data is not None:
        task.load_meta(CheckpointMeta(None, None, {}, data))
    assert task.turns is turns


def test_images_are_turned_as_in_opened_data_unless_set(tmp_path):
    yolo_outlines(tmp_path / "data")
    for word, turns in (("None", True), ("false", False)):
        words = [*WORDS[:4], "-dataset=yolo_outlines", f"-data_path={tmp_path / 'data'}", f"DATA.EXIF_ROTATE={word}"]
        task = ImageSegmentation(load(words).values)
        assert task.turns is False
        task.build_dataset("val", tmp_path)
        assert task.turns is turns
    for word in ("true", "None"):
        task = Detection(load([f"-cfg={ROOT}/configs/detr_shapes.yaml", f"DATA.EXIF_ROTATE={word}"]).values)
        task.build_dataset("val", tmp_path)  # drawn images, which nobody turns
        assert task.turns is (word == "true")


def test_another_backbone_is_taken_by_networks_that_have_one(refuse):
    assert make("MODEL.BACKBONE=resnet18").model_options["backbone"] == "resnet18"
    task = make("DATA.ON_INVALID_SAMPLE=skip")
    samples = SimpleNamespace(replacements=None)
    task._replace_unreadable(samples)
    assert samples.replacements is task.replacements is not None
    task = make()
    task._replace_unreadable(other := SimpleNamespace(replacements=None))
    assert other.replacements is task.replacements is None
    said = refuse(make, "MODEL.BACKBONE=resnet18", "MODEL.NAME=resnet18")
    assert said == "MODEL.BACKBONE resnet18: resnet18 has no such option; remove it"


@pytest.mark.parametrize(
    "words, starts",
    [
        ((), True),
        (("-pretrained=w",), False),
        (("-eval", "-resume=auto"), False),
        (("-resume=auto",), True),
        (("-resume=x",), False),
    ],
)
def test_the_weights_of_a_backbone_are_for_the_start_of_a_training(tmp_path, words, starts):
    file, asked = tmp_path / "b.pdparams", []

    def prepare(*more):
        task = make(f"MODEL.BACKBONE_PRETRAINED={file}", f"-output={tmp_path}", *words, *more)
        task.create_network = lambda number: asked.append(number) or Backbone()
        return task

    task, state = prepare(), {"layer.weight": paddle.ones([20, 3]), "layer.bias": paddle.ones([3])}
    paddle.save(state, str(file))
    before = len(task.notices)
    assert (task.build_model(7).layer.bias.numpy() == 1).all() == starts and asked == [7]
    assert [notice.startswith(f"backbone from {file}: ") for notice in task.notices[before:]] == [True] * starts
    paddle.save({"layer.weight": state["layer.weight"]}, str(file))
    with pytest.raises(UserError, match="layer.bias") if starts else contextlib.nullcontext():
        prepare().build_model(7)
    allowing = prepare("-allow_changes")
    allowing.load_meta(CheckpointMeta(2, ("q",)))
    allowing.build_model(2)
    assert allowing.class_names == ["q", "1"]
    (tmp_path / "checkpoints" / "last").mkdir(parents=True)
    paddle.save(state, str(file))
    starts_again = starts and "-resume=auto" not in words
    assert (prepare().build_model(7).layer.bias.numpy() == 1).all() == starts_again


class Backbone(Model):
    """A layer, as a network and as its own backbone."""

    own_parts = ()

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(20, 3)
        self.__dict__["pretrained_part"] = self


def test_the_averaged_weights_of_a_run_start_a_backbone(tmp_path):
    values = {"model": np.ones((20, 3), np.float32), "model_ema": np.full((20, 3), 2.0, np.float32)}
    for name, value in values.items():
        state = {"layer.weight": value, "layer.bias": np.zeros(3, np.float32)}
        paddle.save({key: paddle.to_tensor(array) for key, array in state.items()}, str(tmp_path / f"{name}.pdparams"))
    task = make(f"MODEL.BACKBONE_PRETRAINED={tmp_path}")
    task.create_network = lambda number: Backbone()
    np.testing.assert_array_equal(task.build_model(7).layer.weight.numpy(), values["model_ema"])


class Net(Model):
    """A backbone, a frozen layer and a head; names one parameter that is not decayed."""

    def __init__(self):
        super().__init__()
        self.backbone, self.head, self.frozen = nn.Linear(2, 3), nn.Linear(3, 4), nn.Linear(2, 2)
        for parameter in self.frozen.parameters():
            parameter.stop_gradient = True
        self.table = self.create_parameter([2, 2])

    def no_weight_decay(self):
        return ("table",)


def test_a_backbone_has_its_rate_and_biases_do_not_decay(refuse):
    task = make("TRAIN.WEIGHT_DECAY=0.25", "TRAIN.BACKBONE_LR_FACTOR=0.125")
    net = Net()
    groups = get_aspect(task, ParameterGrouping).parameter_groups(net)
    groups, _ = complete_groups(groups, net, 0.25, set(), None, print)
    assert sorted((sorted(group["names"]), group["weight_decay"], group["learning_rate"]) for group in groups) == [
        (["backbone.bias"], 0.0, 0.125),
        (["backbone.weight"], 0.25, 0.125),
        (["head.bias", "table"], 0.0, 1.0),
        (["head.weight"], 0.25, 1.0),
    ]
    said = refuse(get_aspect(task, Recomputable).recomputed_layers, Net())
    assert said == "TRAIN.RECOMPUTE: upernet_swin_tiny has no layers to recompute; remove TRAIN.RECOMPUTE"
    net, made = Net(), []
    net.recomputed_layers = lambda: [net.head]
    assert get_aspect(task, Recomputable).recomputed_layers(net) == [net.head]
    task.create_network = lambda number: made.append((number, nn.Linear(2, 2).weight.shape))
    assert get_aspect(task, ModelChecking).check_model() == [] and made[0][0] == 1
    task.num_classes = 6
    get_aspect(task, ModelChecking).check_model()
    assert made[1][0] == 6 and paddle.in_dynamic_mode()
