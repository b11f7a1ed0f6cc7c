"""What a log and ``doctor`` say of labeled images."""

import math

import numpy as np
import paddle
import pytest
from support.samples.augmented_samples import Images, make_task
from support.trainings.small_runs import DIGITS

from paddlevit_dist import UserError
from paddlevit_dist.core import settings
from paddlevit_dist.core.tasks.aspects import get_aspect
from paddlevit_dist.core.tasks.protocols import Checkable, LogContributor, ModelChecking, Recomputable, describe_samples
from paddlevit_dist.images.classification.samples import ClassificationSamples
from paddlevit_dist.images.classification.task import Classification
from paddlevit_dist.images.transforms.crops import EvaluationTransform


def make_samples(labels, classes, names=None) -> ClassificationSamples:
    dataset = Images()
    dataset.labels, dataset.num_classes, dataset.class_names, dataset.is_random_split = labels, classes, names, False
    return ClassificationSamples(dataset, EvaluationTransform(16, 1.0))


def test_a_split_is_described_by_the_images_of_each_class_or_the_range_of_many():
    task, labels = make_task(), np.array([2, 0, 2, 2, 0], np.uint8)
    assert describe_samples(task, make_samples(labels, 3, ["ant", "bee", "cow"])) == "24 images: ant 2, bee 0, cow 3"
    log = get_aspect(task, LogContributor)
    assert log.count_classes(make_samples(labels, 3, ["ant", "bee", "cow"])) == {"ant": 2, "bee": 0, "cow": 3}
    assert log.count_classes(make_samples(labels, 3, ["crane", "bee", "crane"])) == {"crane": 5, "bee": 0}
    assert log.count_classes(make_samples(None, 3)) is log.count_classes(Images()) is None
    assert describe_samples(task, make_samples(labels, 20)).endswith(", 19 0")
    assert describe_samples(task, make_samples(labels, 21)) == "24 images of 21 classes, 0 to 3 each"
    assert describe_samples(task, make_samples(None, 3)) == describe_samples(task, Images()) == "24 images"


def test_labels_are_those_of_the_data_set_and_of_a_sample():
    checks, labels = get_aspect(make_task(), Checkable), np.array([2, 0, 2], np.uint8)
    found = checks.get_labels(make_samples(labels, 3))
    assert found.dtype == np.int64 and found.tolist() == [2, 0, 2]
    assert checks.get_labels(make_samples(None, 3)) is None is checks.get_labels(Images())
    label = checks.labels_in(("pixels", np.uint8(7)))
    assert label.dtype == np.int64 and label.tolist() == 7


def test_uniform_predictions_have_a_known_loss_unless_classes_have_weights():
    task = make_task("-num_classes=7")
    assert get_aspect(task, Checkable).expected_losses() == {"loss": math.log(7)}
    task.class_weights = np.ones(7, np.float32)
    assert get_aspect(task, Checkable).expected_losses() == {}


def test_a_model_is_built_to_check_it_and_nothing_is_noted():
    assert get_aspect(make_task(), ModelChecking).check_model() == []
    wrong = Classification(settings.load([*DIGITS, "MODEL.NAME", "vit", "MODEL.EMBED_DIM", "17"]).values)
    with pytest.raises(UserError, match="EMBED_DIM"):
        get_aspect(wrong, ModelChecking).check_model()


def test_layers_that_cannot_be_recomputed_are_told_with_the_reason():
    task = make_task("MODEL.NAME", "vit")
    recomputation = get_aspect(task, Recomputable)
    plain, normed = paddle.nn.Linear(2, 2), paddle.nn.BatchNorm2D(2)
    with pytest.raises(UserError, match="^TRAIN.RECOMPUTE: vit has no LayerList named 'blocks'"):
        recomputation.recomputed_layers(plain)
    with pytest.raises(UserError, match="^TRAIN.RECOMPUTE: vit has batch norms, whose running statistics"):
        recomputation.recomputed_layers(normed)
    network = task.create_network(3)
    assert recomputation.recomputed_layers(network) == [*network.blocks]
