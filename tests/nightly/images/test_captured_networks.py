"""All families of classifiers and more recipes in captured passes (TRAIN.CAPTURE), by a graph for CPUs."""

import pytest
from integration.images.test_captured_networks import LABEL_MAPS, NETWORKS, PLAIN, require_the_same_training
from support.networks.every_classifier import ONE_OF_EACH_FAMILY
from support.processes import ROOT
from support.trainings.captured_runs import require_the_same_run

RECIPES = {
    "mixed in pairs": "TRAIN.MIXUP_ALPHA 0.8 TRAIN.MIXUP_MODE pair TRAIN.CLASS_WEIGHTS balanced",
    "evaluated between": "MODEL.DROPOUT 0.0 TRAIN.LR_SCHEDULER.NAME step TRAIN.LR_SCHEDULER.MILESTONES [1] -epochs=2",
}


@pytest.mark.parametrize("name", [name for name in ONE_OF_EACH_FAMILY if name not in NETWORKS])
def test_each_family_trains_in_a_graph_as_without_one(name):
    require_the_same_training(name)


@pytest.mark.parametrize("recipe", RECIPES)
def test_more_recipes_train_in_a_graph_as_without_one(tmp_path, recipe):
    require_the_same_run(tmp_path, [*PLAIN, *RECIPES[recipe].split()])


@pytest.mark.parametrize(
    "words",
    [
        "SEGMENTATION.OHEM_THRESHOLD 0.7 SEGMENTATION.CLASS_WEIGHTS [1,2,1,1]",
        "MODEL.NAME upernet_of_tests MODEL.TYPE upernet TRAIN.DICE_WEIGHT 0.5",
    ],
)
def test_more_losses_of_pixels_train_in_a_graph_as_without_one(tmp_path, words):
    require_the_same_run(tmp_path, [*LABEL_MAPS, *words.split()], {"val": 4})


def test_several_labels_train_in_a_graph_as_without_one(tmp_path):
    require_the_same_run(tmp_path, [*PLAIN, f"-cfg={ROOT / 'configs' / 'multi_digits.yaml'}"])
