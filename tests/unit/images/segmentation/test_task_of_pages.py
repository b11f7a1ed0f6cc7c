"""A term of a user beside the loss of label maps, as the page about extending adds it."""

import re

import cv2
import numpy as np
import paddle
import pytest
from support.processes import ROOT
from support.registrations import forgotten
from support.trainings import small_segmenters

from paddlevit_dist import UserError
from paddlevit_dist.core import settings
from paddlevit_dist.core.tasks.loss_checks import has_own_step
from paddlevit_dist.core.tasks.step_types import StepPosition
from paddlevit_dist.core.tasks.task_factory import make_task

PAGE = (ROOT / "docs" / "guides" / "extending.md").read_text(encoding="utf-8")
PROGRAM = re.search(r"`tversky.py`:\n\n```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)[1]
EOMT = ["MODEL.NAME", "eomt_semantic_shapes", "MODEL.TYPE", "eomt"]


@pytest.fixture(scope="module", autouse=True)
def program():
    """The program, imported as a run imports it."""
    with forgotten():
        exec(compile(PROGRAM, "tversky.py", "exec"), {"__name__": "tversky"})
        yield


def make_segmentation(*words):
    return make_task(settings.load([*small_segmenters.SHAPES, *words]).values)


def test_a_term_of_the_page_is_added_to_those_of_one_pass():
    task, plain = make_segmentation("TASK", "tversky"), make_segmentation()
    samples = task.build_dataset("train", None)
    plain.build_dataset("train", None)
    arrays = task.collate([samples.sample(index, np.random.default_rng(index)) for index in range(3)])
    batch = {name: paddle.to_tensor(arrays[name]) for name in ("images", "labels")}
    small, passes = np.random.default_rng(0).normal(size=(3, 4, 12, 20)).astype("float32"), []

    def network(images):
        passes.append(images)
        return paddle.to_tensor(small)

    terms = task.train_step(network, batch, StepPosition(1, 0, 1))
    assert len(passes) == 1
    expected = 0.0
    for logits, labels in zip(small, arrays["labels"]):
        logits = np.stack([cv2.resize(each, labels.shape[::-1], interpolation=cv2.INTER_LINEAR) for each in logits])
        shares = (np.exp(logits) / np.exp(logits).sum(axis=0))[:, labels != 255]
        for label, share in enumerate(shares):
            is_label = labels[labels != 255] == label
            true, wrong, missed = share[is_label].sum(), share[~is_label].sum(), (1 - share[is_label]).sum()
            expected += (1 - (true + 1) / (true + 0.3 * wrong + 0.7 * missed + 1)) / 4
    assert (arrays["labels"] == 255).any()
    tversky = terms.pop("tversky")
    assert (float(tversky.sum), tversky.count, tversky.weight) == (pytest.approx(expected, rel=1e-4), 3, 0.5)
    assert task.loss_normalizers(arrays) == {**plain.loss_normalizers(arrays), "tversky": 3}
    own = plain.train_step(network, batch, StepPosition(1, 0, 1))
    assert terms.keys() == own.keys()
    for name, term in own.items():
        assert float(terms[name].sum) == pytest.approx(float(term.sum), rel=1e-5)
    assert has_own_step(task) and not has_own_step(plain)  # its divisors and gradients are checked


def test_a_network_with_losses_of_its_own_takes_no_further_term():
    task = make_segmentation("TASK", "tversky", *EOMT)
    with pytest.raises(UserError, match="eomt_semantic_shapes has its own losses, .* so Tversky"):
        task.build_dataset("train", None)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            ("losses.mean(axis=1).sum()", "losses.mean()"),
            "Segmentation.further_terms returns a mean over samples as 'tv",
        ),
        (("return {", "return None and {"), "Segmentation.further_terms returns NoneType: expected a dictionary of "),
        (("LossTerm(losses.mean(axis=1).sum(),", "(losses.sum(),"), "Segmentation.further_terms"),
    ],
)
def test_a_term_that_is_no_sum_is_refused(change, words):
    with forgotten():
        program = PROGRAM.replace(*change).replace(", weight=0.5", "" if "LossTerm(" in change[0] else ", weight=0.5")
        assert program != PROGRAM
        exec(compile(program.replace('"tversky", T', '"other", T'), "other.py", "exec"), {"__name__": "other"})
        task = make_segmentation("TASK", "other")
        samples = task.build_dataset("train", None)
        arrays = task.collate([samples.sample(index, np.random.default_rng(index)) for index in range(3)])
        batch = {name: paddle.to_tensor(arrays[name]) for name in ("images", "labels")}
        with pytest.raises(UserError, match=words):
            task.train_step(lambda images: paddle.ones([3, 4, 12, 20]), batch, StepPosition(1, 0, 1))
