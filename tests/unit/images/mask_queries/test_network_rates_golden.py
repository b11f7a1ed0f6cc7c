"""Rates of EoMT's layers and the course of its masks, as the authors' code has them."""

import numpy as np
import pytest
from support.networks.cheap_weights import weights_of_zero
from support.networks.golden_eomt import GOLDEN, MODELS, options

from paddlevit_dist import UserError
from paddlevit_dist.core.checkpoint.load import load_weights
from paddlevit_dist.core.engine.optimizer import block_matrices, layer_decay_groups
from paddlevit_dist.core.tasks.model_factory import create_model
from paddlevit_dist.images.mask_queries.annealing import MaskAnnealing, list_annealing
from paddlevit_dist.images.mask_queries.network import Eomt

TRAINING = GOLDEN["training"]


@pytest.mark.parametrize("name", TRAINING["groups"])
def test_golden_eomt_factors_of_layers(name):
    about = TRAINING["groups"][name]
    listed = {each for _, _, names in about["groups"] for each in names}
    model = next(each for each, other in MODELS.items() if listed == set(other["parameter_names"]))
    state = MODELS[model]["state"]
    sizes = {**options(model), "num_blocks": about["blocks"], "decay_last_blocks": about["options"]["llrd_l2_enabled"]}
    with weights_of_zero():
        network = Eomt(MODELS[model]["config"]["num_labels"], **sizes)
    assert len(network.backbone.blocks) == about["layers"]
    names = [name for name, _ in network.named_parameters()]
    groups = [
        {"names": [each for each in names if each.startswith("backbone.") == is_backbone], "weight_decay": 0.05}
        for is_backbone in (True, False)
    ]
    decay = about["options"]["llrd"]
    ours = layer_decay_groups(groups, network.rate_groups(), decay)
    factors = {each: group["learning_rate"] for group in ours for each in group["names"]}
    # Each of their parameters has its factor as weight, and the sign of what waits.
    theirs = {
        each: np.full(state[each], factor if is_backbone else -factor, np.float32)
        for factor, is_backbone, listed in about["groups"]
        for each in listed
    }
    load_weights(network, theirs, strict=True)
    for each, value in network.named_parameters():
        (factor,) = np.unique(value.numpy())
        np.testing.assert_allclose(abs(factor), factors[each], rtol=1e-6, err_msg=each)
        assert (factor > 0) == each.startswith("backbone."), each


def test_low_rank_terms_and_muon_reach_every_block():
    network = create_model("eomt_panoptic_shapes", num_classes=4)
    first, *blocks, rest = network.layer_groups()
    assert len(blocks) == len(network.backbone.blocks)
    for number, names in enumerate(blocks):
        assert all(name.startswith(f"backbone.blocks.{number}.") for name in names)
    assert {"class_head.weight", "query.weight", "backbone.norm.weight"} <= {*rest} and "backbone.pos_embed" in first
    matrices = {name.rpartition("blocks.")[2] for name in block_matrices(network)}
    parts = "attn.qkv", "attn.proj", "mlp.fc1", "mlp.fc2"
    assert matrices == {f"{number}.{part}.weight" for number in range(len(blocks)) for part in parts}


def test_golden_eomt_course_of_masks():
    about = TRAINING["annealing"]
    course = MaskAnnealing(about["start"], about["end"])
    for update, probability in about["values"]:
        np.testing.assert_allclose(course.probability(update), probability, rtol=1e-12)


def test_course_without_updates_is_of_shares_of_the_training():
    courses = list_annealing(None, 4)
    assert [course.probability(0, 600) for course in courses] == [1.0] * 4
    assert [course.probability(599, 600) for course in courses] == [0.0] * 4
    middle = [course.probability(300, 600) for course in courses]
    assert middle[0] == middle[1] == 0 and middle[2] == middle[3] == 1
    assert list_annealing([[0.5, 1]], 1)[0].probability(75, 100) == pytest.approx(0.5**0.9)


@pytest.mark.parametrize(
    ("annealing", "starts", "ends"),
    [
        ([[0, 0.4], [0.4, 1]], [0, 80], [80, 200]),
        ([[0, 1], [0.5, 1.0]], [0, 100], [200, 200]),
        ([[0, 1], [1, 2]], [0, 1], [1, 2]),
        ([[0, 1.0], [90.0, 120]], [0, 90], [1, 120]),
    ],
    ids=str,
)
def test_a_course_is_of_shares_if_no_number_is_above_one(annealing, starts, ends):
    courses = list_annealing(annealing, 2)
    for course, start, end in zip(courses, starts, ends):
        assert course.probability(max(0, start - 1), 200) == 1.0 and course.probability(end, 200) == 0.0
        assert course.probability(start, 200) == 1.0 and (end == start + 1 or course.probability(start + 1, 200) < 1.0)


def test_updates_after_the_end_of_a_training_are_reported():
    network = create_model("eomt_panoptic_shapes", num_classes=4, num_blocks=2, annealing=[[5, 10], [20, 31]])
    assert network.list_course_notices(31) == []
    (line,) = network.list_course_notices(30)
    assert "MODEL.OPTIONS.annealing" in line and "update 31, after this run's 30" in line
    assert create_model("eomt_panoptic_shapes", num_classes=4).list_course_notices(2) == []


WRONG = [[[0, 1]], [[0, 1], [5, 4]], [[0, 1], [1]], [[-1, 1], [0, 1]], 3, [1, 2], [["a", "b"], [0, 1]], [[0, 1], None]]
WRONG += [[[0, 0.5], [0.5, 2.0]], [[0, 1], [float("nan"), 1]], "ab", [[True, 2], [0, 1]], [[0, 3000], [0.4, 0.6]]]


@pytest.mark.parametrize("wrong", WRONG, ids=str)
def test_courses_that_do_not_fit_are_refused(wrong):
    with pytest.raises(UserError, match="annealing"):
        list_annealing(wrong, 2)
