"""What -selftest takes for rounding, and what it sees although something hides it."""

import numpy as np
import paddle
from support.trainings.runs import DIGITS

from paddlevit_dist.core import settings
from paddlevit_dist.extensions.debug.selftest import compare_variants, read_variant, run_variant
from paddlevit_dist.images.classification.task import Classification


class OnAnEdge(paddle.nn.Layer):
    """A linear model that goes another way where a weight's last bit says so, as at a tie of two scores."""

    def __init__(self, edge: float) -> None:
        super().__init__()
        self.head = paddle.nn.Linear(256, 10)
        self.edge = self.create_parameter([1], default_initializer=paddle.nn.initializer.Constant(edge))

    def forward(self, images: paddle.Tensor) -> paddle.Tensor:
        features = images.flatten(1)
        return self.head(paddle.where(self.edge > 1, 1.001 * features, features)) * self.edge


class Digits(Classification):
    edge = 1.0
    weight = 1.0

    def build_model(self):
        return OnAnEdge(self.edge)

    def train_step(self, model, batch, step):
        return {
            name: term._replace(weight=self.weight) for name, term in super().train_step(model, batch, step).items()
        }


class OverTheEdge(Digits):
    edge = float(np.nextafter(np.float32(1), np.float32(2)))


class Halved(Digits):
    weight = 0.5


class Larger(Digits):
    weight = 1.1


class NeverTheSame(Digits):
    def train_step(self, model, batch, step):
        by = np.random.default_rng().uniform(0.5, 0.9)  # no seed of a run's
        terms = super().train_step(model, batch, step)
        return {name: term._replace(sum=by * term.sum) for name, term in terms.items()}


def make_ways(folder, *kinds, keys=()):
    """What a single process makes of these tasks; of the first also twice from weights with other last bits."""
    values = settings.load([*DIGITS, f"-output={folder}", "TRAIN.OPTIMIZER.NAME", "SGD", *keys]).values
    for number, kind in enumerate(kinds):
        place = folder / kind.__name__
        place.mkdir()
        task = kind(values)
        run_variant(values, task, task.build_dataset("train", folder), str(place), perturbed=0 if number else 2)
        yield read_variant(place)


def differing(one, other):
    return [difference.name for difference in compare_variants(one, other) if difference.share > difference.allowed]


def test_what_last_bits_decide_is_no_difference(tmp_path):
    one, other = make_ways(tmp_path, Digits, OverTheEdge)
    assert len(differing(one._replace(rounding={}), other)) > 5 and differing(one, other) == []


def test_a_factor_common_to_all_gradients_is_seen_where_clipping_hides_it(tmp_path):
    one, *others = make_ways(tmp_path, Digits, Halved, Larger, keys=("TRAIN.GRAD_CLIP", "0.01"))
    for other in others:
        assert differing(one, other) == [
            f"gradient of '{name}' in update 1" for name in ("edge", "head.weight", "head.bias")
        ]


def test_what_is_not_repeatable_at_all_is_not_taken_for_rounding(tmp_path):
    assert differing(*make_ways(tmp_path, NeverTheSame, Digits))[0] == "loss term 'loss' of update 1"
