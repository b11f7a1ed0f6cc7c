"""What the command ``convert`` prints, and how it finds the layout of weights."""

from types import SimpleNamespace

import numpy as np
import pytest

from paddlevit_dist import UserError
from paddlevit_dist.checkpoint.weights import SourceWeights
from paddlevit_dist.commands import convert
from paddlevit_dist.commands.convert import ConvertedWeights


@pytest.mark.parametrize(("number", "more"), [(0, None), (5, ""), (6, " ...")])
def test_origin_notices_unknown_names_and_size_are_lines(monkeypatch, capsys, number, more):
    calls = []
    state = {"a": np.zeros((40, 30)), "b": np.zeros(7), "c": np.zeros((2, 2))}
    unknown = [f"n{each}{'x' * 200 * (each == 1)}" for each in range(number)]
    converted = ConvertedWeights(state, set(), "vit, ours", unknown, "file", ("one", "two\nlines"))
    monkeypatch.setattr(convert, "import_paddle", lambda: calls.append("paddle"))
    monkeypatch.setattr(convert, "convert", lambda *words: calls.append(words) or converted)
    convert.run(["in", "out.pdparams", "-part=ema"])
    convert.run(["in", "out.pdparams"])
    assert calls == ["paddle", ("in", "out.pdparams", "ema", "timm"), "paddle", ("in", "out.pdparams", None, "timm")]
    said = capsys.readouterr().out.splitlines()
    said = said[: len(said) // 2]
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
    assert convert._is_paddle_layout(state, linear, otherwise) is is_paddle


def test_numbers_of_names_do_not_count():
    assert convert.mask_numbers("blocks.10.attn2.qkv3.weight") == "blocks.#.attn#.qkv#.weight"


@pytest.mark.parametrize(
    ("settings", "keeps"),
    [
        ({"MODEL": {"NAME": "timm:resnet18"}}, True),
        ({"MODEL": {"NAME": "resnet18"}}, False),
        ({"MODEL": {"NAME": 3}}, False),
        ({"MODEL": "timm:resnet18"}, False),
        ({}, False),
        (None, False),
    ],
)
@pytest.mark.parametrize("is_fetched", [True, False])
def test_weights_of_a_run_with_timms_model_are_kept(monkeypatch, settings, keeps, is_fetched):
    monkeypatch.setattr(convert, "is_fetched", lambda source: is_fetched)
    monkeypatch.setattr(convert, "find_weights_file", lambda source: f"file of {source}")
    monkeypatch.setattr(convert, "read_weights_info", lambda file: f"info of {file}")
    read = lambda info, file: settings if (info, file) == ("info of file of w", "file of w") else 1 / 0  # noqa: E731
    monkeypatch.setattr(convert, "find_run_settings", read)
    weights = SimpleNamespace(state={"a": shape(2)}, name="mine", notices=("n",))
    kept = convert.keep_timm_names("w", weights)
    expected = (weights.state, set(), "timm:resnet18, timm's own names and layout", [], "mine", ("n",))
    assert kept == (expected if keeps and not is_fetched else None)


def test_what_lora_changed_alone_is_refused(monkeypatch, tmp_path):
    weights = SourceWeights("w", {"a.weight": shape(2), "a.lora_a": shape(2)}, True)
    monkeypatch.setattr(convert, "evaluated_weights", lambda source: f"{source} found")
    monkeypatch.setattr(convert, "read_weights", lambda source, part: weights if part == "ema" else None)
    monkeypatch.setattr(convert, "is_factor", lambda name: name.endswith("lora_a"))
    with pytest.raises(UserError, match=r"^convert: w found has only what TRAIN.LORA changed, without its base; "):
        convert.convert("w", str(tmp_path / "a.pdparams"), "ema")
