"""What the command ``convert`` prints, and how it finds the layout of weights."""

import numpy as np
import paddle
import pytest
import yaml

from paddlevit_dist import UserError
from paddlevit_dist.core.checkpoint.families import ConvertedWeights, guess_paddle_layout, mask_numbers
from paddlevit_dist.core.checkpoint.weights import SourceWeights
from paddlevit_dist.core.commands import convert


@pytest.mark.parametrize(("number", "more"), [(0, None), (5, ""), (6, " ...")])
def test_origin_notices_unknown_names_and_size_are_lines(number, more):
    state = {"a": np.zeros((40, 30)), "b": np.zeros(7), "c": np.zeros((2, 2))}
    unknown = [f"n{each}{'x' * 200 * (each == 1)}" for each in range(number)]
    converted = ConvertedWeights(state, set(), "vit, ours", unknown, "file", ("one", "two\nlines"))
    said = convert.describe_conversion(converted, "out.pdparams")
    assert said[0] == "file: vit, ours" and said[-1] == "out.pdparams: 3 arrays, 1,211 numbers"
    assert said[1] == "note: one" and said[2].startswith("note: two") and len(said) == 4 + (number > 0)
    if number:
        names = said[3].removeprefix("unknown names, written unchanged: ").removesuffix(" ...").split(", ")
        assert [name[:2] for name in names] == ["n0", "n1", "n2", "n3", "n4"] and len(names[1]) <= 120
        assert said[3].endswith(f"n4{more}")


def shape(*sides: int) -> np.ndarray:
    return np.zeros(sides, "float32")


@pytest.mark.parametrize(
    ("shapes", "otherwise", "is_paddle"),
    [
        ({"a.weight": (2, 3), "a.bias": (3,)}, False, True),
        ({"a.weight": (2, 3), "a.bias": (2,)}, True, False),
        ({"a.weight": (3, 3), "a.bias": (3,)}, False, False),
        ({"a.weight": (3, 3), "a.bias": (3,)}, True, True),
        ({"a.weight": (2, 3)}, True, True),
        ({"a.weight": (2, 3), "a.bias": (1, 2)}, True, True),
        ({"a.weight": (2, 3), "a.bias": (3,), "b.weight": (4, 5), "b.bias": (4,)}, True, True),  # one against one
        ({"a.weight": (2, 3), "a.bias": (3,), "b.weight": (4, 5), "b.bias": (4,)}, False, False),
        ({f"{n}.weight": (2, 3) for n in "abc"} | {"a.bias": (2,), "b.bias": (2,), "c.bias": (3,)}, True, False),
    ],
)
def test_biases_tell_the_layout_of_weights_that_are_not_square(shapes, otherwise, is_paddle):
    state = {name: shape(*sides) for name, sides in shapes.items()}
    linear = {name for name in state if name.endswith("weight")}
    assert guess_paddle_layout(state, linear, otherwise) is is_paddle


def test_numbers_of_names_do_not_count():
    assert mask_numbers("blocks.10.attn2.qkv3.weight") == "blocks.#.attn#.qkv#.weight"


@pytest.mark.parametrize(
    ("settings", "keeps"),
    [
        ({"MODEL": {"NAME": "timm:resnet18"}}, True),
        ({"MODEL": {"NAME": "resnet18"}}, False),
        ({}, False),
        (None, False),
    ],
)
def test_weights_of_a_run_with_timms_model_are_kept(tmp_path, settings, keeps):
    file = tmp_path / "w.pdparams"
    paddle.save({"a": paddle.zeros([2])}, str(file))
    if settings is not None:
        (tmp_path / "w.pdparams.about.yaml").write_text(yaml.safe_dump({"settings": settings}), encoding="utf-8")
    weights = SourceWeights("mine", {"a": shape(2)}, True, ("n",))
    expected = (weights.state, set(), "timm:resnet18, timm's own names and layout", [], "mine", ("n",))
    assert convert.keep_timm_names(str(tmp_path / "w"), weights) == (expected if keeps else None)
    assert convert.keep_timm_names("https://host/w.pdparams", weights) is None


@pytest.mark.usefixtures("families_once")
def test_what_lora_changed_alone_is_refused(tmp_path):
    state = {"a.weight": paddle.zeros([2]), "a.lora_a": paddle.zeros([2])}
    paddle.save({"model": {"a.weight": paddle.zeros([2])}, "ema": state}, str(tmp_path / "w.pdparams"))
    with pytest.raises(
        UserError, match=r"^convert: .*w.pdparams has only what TRAIN.LORA changed, and no about.yaml that "
    ):
        convert.convert(str(tmp_path / "w.pdparams"), str(tmp_path / "a.pdparams"), "ema")
