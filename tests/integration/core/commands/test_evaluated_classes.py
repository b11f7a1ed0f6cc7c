"""Evaluations of weights whose classes are named next to them, in another order than the data's folders."""

import json
import re

import numpy as np
import paddle
import pytest
from PIL import Image
from support.processes import run_main, succeeded
from support.trainings.runs import PLAIN

from paddlevit_dist import create_model

SMALL = "MODEL.NAME vit MODEL.EMBED_DIM 16 MODEL.DEPTH 1 MODEL.NUM_HEADS 2 MODEL.PATCH_SIZE 8".split()
SIZES = {"image_size": 16, "embed_dim": 16, "depth": 1, "num_heads": 2, "patch_size": 8}
COLORS = [(200, 20, 20), (20, 200, 20), (20, 20, 200)]


def write_images(folder, names):
    for name, color in zip(names, COLORS):
        for split in ("train", "val"):
            (folder / split / name).mkdir(parents=True)
            for number in range(2):
                Image.new("RGB", (20, 20), color).save(folder / split / name / f"{number}.png")
    return folder


def write_weights(folder, classes, order=None, **config):
    """Write the weights of a network, with the rows of its classifier in ``order``, and a ``config.json``."""
    folder.mkdir()
    paddle.seed(0)
    model = create_model("vit", num_classes=classes, **SIZES)
    model.head.bias.set_value(np.random.default_rng(0).standard_normal(classes).astype("float32"))
    if order is not None:
        model.head.weight.set_value(model.head.weight.numpy()[:, order])
        model.head.bias.set_value(model.head.bias.numpy()[order])
    paddle.save(model.state_dict(), str(folder / "model.pdparams"))
    if config:
        (folder / "config.json").write_text(json.dumps(config))
    return folder


def evaluate(data, weights, *words):
    common = [PLAIN, "-eval", "-dataset=folder", f"-data_path={data}", f"-pretrained={weights}", *SMALL]
    return run_main(*common, "-image_size=16", f"-output={weights}_out", "-ngpus=1", *words)


def get_score(ended):
    return re.findall(r"^top-1 .*", succeeded(ended).out, re.M)


@pytest.mark.parametrize("field", ["id2label", "label_names"])
def test_a_score_is_of_equal_names(tmp_path, field):
    data, names = write_images(tmp_path / "data", ["ant", "bee", "cat"]), ["cat", "ant", "bee"]
    named = evaluate(data, write_weights(tmp_path / "named", 3, **{field: dict(enumerate(names))}))
    assert "3 of 3 classes by name" in named.out and "classes unknown" not in named.out
    ordered = evaluate(data, write_weights(tmp_path / "ordered", 3, order=[1, 2, 0]))
    assert "classes unknown" in ordered.out
    assert get_score(named) == get_score(ordered) != []


def test_weights_of_imagenet_are_scored_by_synset_where_the_advice_is_followed(tmp_path):
    data = write_images(tmp_path / "data", ["n01440764", "n01514668", "n01807496"])  # classes 0, 7 and 86
    weights = write_weights(tmp_path / "imagenet", 1000)
    refused = evaluate(data, weights)
    assert refused.code == 2 and "set MODEL.NUM_CLASSES to 1000" in refused.err
    by_synset = evaluate(data, weights, "MODEL.NUM_CLASSES", "1000")
    assert "3 of 3 classes by name" in by_synset.out
    other = write_images(tmp_path / "other", ["a", "b", "c"])
    refused = evaluate(other, weights, "MODEL.NUM_CLASSES", "1000", "-allow_changes")
    assert refused.code == 2 and "names none of the 3 of the data (a, b, c)" in refused.err
    (other / "classes.txt").write_text("a n01440764\nb n01514668\nc n01807496\n")
    assert get_score(evaluate(other, weights, "MODEL.NUM_CLASSES", "1000")) == get_score(by_synset) != []


def test_classes_that_weights_do_not_have_are_refused(tmp_path):
    data = write_images(tmp_path / "data", ["ant", "bee", "cat"])
    refused = evaluate(data, write_weights(tmp_path / "named", 3, label_names=["cat", "dog", "ant"]))
    assert (
        refused.code == 2 and "has 2 of the data's 3 classes (ant, bee, cat); its own are cat, dog, ant" in refused.err
    )


def test_names_in_another_language_are_scored_once_the_data_have_them(tmp_path):
    data, names = write_images(tmp_path / "data", ["ant", "bee", "cat"]), ["Katze", "Ameise", "Biene"]
    weights = write_weights(tmp_path / "named", 3, label_names=names)
    refused = evaluate(data, weights, "-allow_changes")
    assert refused.code == 2 and "other class names (Katze, Ameise, Biene) than the data (ant, bee, cat)" in refused.err
    (data / "classes.txt").write_text("ant Ameise\nbee Biene\ncat Katze\n")
    named = evaluate(data, weights)
    ordered = evaluate(data, write_weights(tmp_path / "ordered", 3, order=[1, 2, 0]))
    assert "3 of 3 classes by name" in named.out and get_score(named) == get_score(ordered) != []
