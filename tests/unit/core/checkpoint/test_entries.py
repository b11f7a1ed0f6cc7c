"""Which of a file's entries are the network's: each name that published checkpoints use, in place of the others."""

import numpy as np
import pytest

from paddlevit_dist import UserError
from paddlevit_dist.core.checkpoint import entries
from paddlevit_dist.core.checkpoint.entries import PADDLE_RANKING, RANKING, choose_by_ranking, choose_entry

# Of two entries, the one that their authors evaluate, and the other: timm, BasicSR, RT-DETR, DINO, I-JEPA, MoCo, BYOL.
CHOSEN = [
    *((name, "model_ema") for name in ("model", "state_dict", "model_state_dict", "model_state", "net", "network")),
    *(("state_dict", name) for name in ("state_dict_ema", "ema_state_dict", "ema_model", "ema_net")),
    *(("model_state_dict", name) for name in ("ema_model_state_dict", "model_ema_state_dict")),
    *(("network_weights", "ema_net"), ("weights", "model_ema"), ("params", "model_ema")),
    *(("ema", "model"), ("params_ema", "params"), ("teacher", "student"), ("target_encoder", "encoder")),
    *(("base_encoder", "student"), ("encoder_q", "encoder"), ("online_encoder", "encoder"), ("backbone", "student")),
    *(("encoder", "student"), ("student", "model_ema"), ("model_ema", "module"), ("ema_net", "module")),
]
AVERAGES = [
    "model_ema",
    "state_dict_ema",
    "ema_state_dict",
    "ema_model",
    "ema_model_state_dict",
    "model_ema_state_dict",
]
AVERAGES += ["ema_net", "ema"]


def make_weights(number: float) -> dict:
    return {"a.weight": np.full((2, 2), number), "a.bias": np.full(2, number)}


@pytest.mark.parametrize(("chosen", "other"), CHOSEN)
def test_of_two_entries_the_authors_choice_is_taken_and_the_other_told(chosen, other):
    for content in (
        {chosen: make_weights(1), other: make_weights(2)},
        {other: make_weights(2), chosen: make_weights(1)},
    ):
        state, (notice,) = choose_entry({"epoch": 3, **content}, "file", None, RANKING)
        assert state["a.bias"].tolist() == [1, 1]
        assert notice.startswith(
            f"'{chosen}' of the source was used; it also has '{other}' (MODEL.PRETRAINED_PART {other}"
        )
        assert choose_entry(content, "file", other, RANKING)[0]["a.bias"].tolist() == [2, 2]


@pytest.mark.parametrize("average", AVERAGES)
def test_in_paddles_files_the_average_is_taken(average):
    content = {"model": make_weights(1), average: make_weights(2)}
    assert choose_entry(content, "file", None, PADDLE_RANKING)[0]["a.bias"].tolist() == [2, 2]
    assert choose_by_ranking(["model", average], PADDLE_RANKING) == average
    assert choose_by_ranking(["model", average], RANKING) == ("ema" if average == "ema" else "model")


@pytest.mark.parametrize(
    "beside", ["optimizer", "Optim_state", "opt", "lr_scheduler", "SCHEDULER", "scaler", "dino_loss", "callbacks"]
)
def test_what_training_needs_is_no_network(beside):
    content = {"own": make_weights(1), beside: {**make_weights(2), "more": np.ones(3)}}
    state, notices = choose_entry(content, "file", None, RANKING)
    assert state["a.bias"].tolist() == [1, 1] and notices == ()
    with pytest.raises(UserError, match="weights of several networks, 'own', 'other'"):
        choose_entry({"own": content["own"], "other": content[beside]}, "file", None, RANKING)


@pytest.mark.parametrize(
    ("prefixes", "chosen"),
    [
        (["student", "teacher"], "teacher"),
        (["a.student", "a.teacher"], "a.teacher"),
        (["left", "right"], None),
        (["left"], "left"),
        (["left", "module"], "module"),
        (["teacher", ""], ""),
        (["teacher.x", "teacher"], "teacher"),
        (["x.left", "y.left"], None),
    ],
)
def test_the_outermost_prefix_is_preferred_then_the_one_that_ranks_first(prefixes, chosen):
    assert choose_by_ranking(prefixes, RANKING) == choose_by_ranking(prefixes[::-1], RANKING) == chosen


def test_up_to_eight_parts_are_listed():
    for number in (8, 9):
        content = {f"p{place}": make_weights(place) for place in range(number)}
        listed = ", ".join(f"'p{place}'" for place in range(8))
        with pytest.raises(UserError, match=f"^file has no part 'x'; parts: {listed}$"):
            choose_entry(content, "file", "x", RANKING)
        with pytest.raises(UserError, match=f"weights of several networks, {listed}: choose one"):
            choose_entry(content, "file", None, RANKING)
        flat = {f"p{place}.weight": np.ones(1) for place in range(number)}
        with pytest.raises(UserError, match=f"^file has no part 'x'; parts: {listed}$"):
            choose_entry(flat, "file", "x", RANKING)


def test_nested_entries_are_found_down_to_a_depth():
    for depth, is_found in ((1, True), (3, True), (4, False)):
        content = make_weights(1)
        for _ in range(depth):
            content = {"model": content}
        assert ("a.bias" in choose_entry(content, "file", None, RANKING)[0]) is is_found
    assert entries.is_array(("name", np.ones(1))) and not entries.is_array(("a", "b", np.ones(1)))
    assert not entries.is_array([1.0]) and not entries.is_array(("name", 3))
    for content in (np.ones(2), [1], None):
        with pytest.raises(UserError, match=f"^file contains a {type(content).__name__}, expected a dictionary of wei"):
            choose_entry(content, "file", None, RANKING)


def test_the_only_entry_is_a_part_if_its_names_have_no_beginnings():
    for content, listed in (({"own": {"w": np.ones(1)}}, "'own'"), ({"w": np.ones(1)}, "none")):
        with pytest.raises(UserError, match=f"^file has no part 'x'; parts: {listed}$"):
            choose_entry(content, "file", "x", RANKING)
