"""The report on loaded weights: its line, its lines and its JSON, with lists at their limits."""

import json

import numpy as np
import paddle
import pytest
from support.refusals import refusal_of

from paddlevit_dist.core.checkpoint.load import load_weights
from paddlevit_dist.core.checkpoint.load_report import LoadReport, require_trained
from paddlevit_dist.core.checkpoint.naming import is_in_paddle_layout
from paddlevit_dist.core.checkpoint.weights import SourceWeights
from paddlevit_dist.core.tasks.model_factory import create_model


def make_report(**parts):
    names = [name for part in parts.values() if isinstance(part, list) for name in part]
    return LoadReport("w.npz", "timm names", **parts, shapes=dict.fromkeys(names, ((2, 3), (3, 2))))


@pytest.mark.parametrize("share, shown", [(1.0, "100.0"), (0.9999, "99.9"), (0.0019, "0.1"), (0.0, "0.0")])
def test_shares_are_rounded_down(share, shown):
    report = make_report(loaded=["a"])
    report.loaded_fraction = share
    assert report.summary() == f"loaded 1 of 1 ({shown} % of parameters)"
    assert LoadReport("x", "").summary() == "loaded 0 of 0 (0.0 % of parameters)"


def test_the_line_names_three_of_a_kind_four_of_a_classifier_and_all_that_were_resized():
    report = make_report(
        loaded=["a"],
        resized=["r", "s"],
        reinitialized=list("bcdef"),
        missing=list("ghij"),
        unexpected=list("klmn"),
        classes_by_name=(1200, 1300),
        notices=["first", "second"],
    )
    shapes = "((2, 3) in the source, (3, 2) in the model)"
    assert report.summary() == (
        "loaded 1 of 10 (6 of 10 entries of the source used), 1,200 of 1,300 classes by name, the rest new; "
        "re-initialized b, c, d, e and 1 more; resized r (2, 3) -> (3, 2), s (2, 3) -> (3, 2); 4 missing, which stay "
        f"random: g {shapes}, h {shapes}, i {shapes} and 1 more; not used k, l, m and 1 more; first; second"
    )
    exact = make_report(reinitialized=list("bcde"), missing=list("ghi"), unexpected=list("klm"), classes_by_name=(3, 3))
    assert "more" not in exact.summary() and ", 3 of 3 classes by name; re-init" in exact.summary()
    assert (
        make_report(reinitialized=["b"])
        .summary()
        .startswith("loaded 0 of 1 (0.0 % of parameters apart from the new classifier), re-initialized b")
    )


def test_the_lines_and_the_json_have_every_name_with_its_shapes():
    report = make_report(loaded=["a"], resized=["r"], reinitialized=["b"], missing=["g", "h"], unexpected=["k"])
    report.shapes |= {"h": (None, ()), "k": ((4,), None)}
    both = "(2, 3) in the source, (3, 2) in the model"
    assert report.text().splitlines() == [
        "w.npz: timm names",
        report.summary(),
        f"  resized        r: {both}",
        f"  re-initialized b: {both}",
        f"  missing        g: {both}",
        "  missing        h: not in the source, () in the model",
        "  unexpected     k: (4,) in the source, not in the model",
    ]
    pair = {"source_shape": [2, 3], "model_shape": [3, 2]}
    content = {
        **{"source": "w.npz", "origin": "timm names", "loaded_fraction": 0.0, "loaded": ["a"], "classes_by_name": None},
        **{"resized": [{"name": "r", **pair}], "reinitialized": [{"name": "b", **pair}]},
        "missing": [{"name": "g", **pair}, {"name": "h", "source_shape": None, "model_shape": []}],
        "unexpected": [{"name": "k", "source_shape": [4], "model_shape": None}],
        "notices": [],
    }
    assert report.json() == json.dumps(content, indent=1)


def test_what_would_stay_random_is_told_with_the_number_of_all_tensors():
    report = make_report(loaded=["a"], reinitialized=["b"], missing=["own.c", "d", "e"])
    message = refusal_of(require_trained, report, ["own."], "do this")
    shapes = "((2, 3) in the source, (3, 2) in the model)"
    assert message == (
        f"w.npz lacks 2 of this model's 5 tensors, which would stay random: d {shapes}, e {shapes}; use weights of "
        "this model, or do this. Is it for another architecture?"
    )


@pytest.mark.parametrize("of_file", [True, False])
def test_names_tell_the_layout_of_some_schemes_and_the_file_that_of_the_others(of_file):
    weights = SourceWeights("", {}, of_file)
    assert is_in_paddle_layout("PaddleViT", weights) and is_in_paddle_layout("Google", weights)
    huggingface = ("Hugging Face", "Hugging Face's DINO, CLIP and SigLIP", "Hugging Face's DINOv3 with biases")
    assert not any(is_in_paddle_layout(name, weights) for name in (*huggingface, "torchvision", "the authors'"))
    assert is_in_paddle_layout("timm", weights) is is_in_paddle_layout("PyTorch", weights) is of_file


@pytest.mark.parametrize("minimum, is_enough", [(0.75, True), (0.76, False)])
def test_the_least_share_itself_is_enough(minimum, is_enough):
    model, state = paddle.nn.Linear(3, 1), {"weight": np.ones((3, 1), np.float32)}  # 3 of 4 numbers
    if is_enough:
        assert load_weights(model, state, minimum_loaded=minimum).loaded_fraction == 0.75
    else:
        message = refusal_of(load_weights, model, state, minimum_loaded=minimum)
        assert message == (
            "the given state has only 75.0 % of the model's parameters, at least 76 % are needed "
            "(MODEL.MIN_LOADED_FRACTION): missing bias (1,). Is it for another architecture?"
        )


@pytest.mark.parametrize("is_strict", [True, False])
@pytest.mark.parametrize("theirs, ours", [("average", "token"), ("average", "average"), ("token", "average")])
def test_the_key_that_moves_a_last_norm_is_named(theirs, ours, is_strict):
    sizes = {"image_size": 8, "patch_size": 8, "embed_dim": 4, "depth": 1, "num_heads": 1}
    behind, before = {"pool": "average", "pool_norm": True}, {"pool_norm": False}
    source = create_model("vit", 2, **sizes, **(behind if theirs == "average" else {"pool": "token", **before}))
    model = create_model("vit", 2, **sizes, **({"pool": ours, **before} if theirs == "average" else behind))
    message = refusal_of(load_weights, model, source.state_dict(), strict=is_strict, minimum_loaded=1.0)
    key = "pool average and MODEL.OPTIONS.pool_norm true" if theirs == "average" else "pool_norm false"
    assert message.endswith(f"set MODEL.OPTIONS.{key}") and "architecture" not in message
