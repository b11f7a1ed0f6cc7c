"""A task in a few lines: the page's program, what its samples and measures may be, and what is refused."""

import pickle
import re
from collections import namedtuple
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import paddle
import pytest
from paddle import io, nn
from support.processes import ROOT
from support.registrations import forgotten

from paddlevit_dist import UserError
from paddlevit_dist.core.registry.names import REGISTRY
from paddlevit_dist.core.settings import load
from paddlevit_dist.core.tasks import BadSample, MeasuredTask, Predictable, StepPosition, Task, get_aspect
from paddlevit_dist.core.tasks.dataset import Dataset, TransformedDataset
from paddlevit_dist.core.tasks.listed_samples import open_samples
from paddlevit_dist.core.tasks.measured_task import NamedParts, stack_samples
from paddlevit_dist.core.tasks.protocols import get_sample_check
from paddlevit_dist.core.tasks.step_types import EvaluationStep

PAGE = (ROOT / "docs" / "guides" / "own_task.md").read_text(encoding="utf-8")
PROGRAM = re.search(r"`dots.py`:\n\n```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)[1]
MOST_LINES, MOST_NAMES = 25, 4


@pytest.fixture(scope="module")
def counting():
    """The task of the page, as a run makes it."""
    with forgotten():
        exec(compile(PROGRAM, "dots.py", "exec"), {"__name__": "dots"})
        yield REGISTRY.tasks["dots"](load(["TASK=dots"]).values)


def test_the_program_is_short_and_needs_few_names_of_ours():
    assert len(list(filter(str.strip, PROGRAM.splitlines()))) <= MOST_LINES
    imported = re.findall(r"^from paddlevit_dist\S* import (.*)$", PROGRAM, re.MULTILINE)
    own = {name.strip() for line in imported for name in line.split(",")} | {"measure"}
    assert own == {"register_task", "MeasuredTask", "measure"} and len(own) <= MOST_NAMES


def make_batch(task, samples, indices):
    readings = [samples.sample(index, np.random.default_rng(0)) for index in indices]
    return {name: paddle.to_tensor(array) for name, array in task.collate(readings).items()}


def test_the_task_of_the_page_learns_the_loss_and_scores_the_mean_of_each_measure(counting):
    samples, indices = open_samples(counting, "val", None), range(12)
    assert isinstance(samples.dataset, io.Dataset) and len(samples) == 100
    batch, network = make_batch(counting, samples, indices), counting.build_model()
    assert {name: str(value.dtype) for name, value in batch.items()} == {
        "inputs": "paddle.float32",
        "targets": "paddle.int64",
    }
    dots = np.array([samples.dataset[index][0].sum() / 3 for index in indices])
    np.testing.assert_array_equal(dots, batch["targets"].numpy())
    errors = abs(network(batch["inputs"]).numpy()[:, 0] - dots)
    losses = np.where(errors < 1, errors**2 / 2, errors - 0.5)
    terms = counting.train_step(network, batch, StepPosition(1, 0, 1))
    assert [(name, term.count, term.weight) for name, term in terms.items()] == [("loss", 12, 1), ("error", 12, 0)]
    np.testing.assert_allclose([float(term.sum) for term in terms.values()], [losses.sum(), errors.sum()], rtol=1e-5)
    assert not terms["loss"].sum.stop_gradient and terms["error"].sum.stop_gradient
    metrics = counting.build_metrics()
    for part in (range(5), range(5, 12)):  # batches of different sizes
        counting.eval_step(network, make_batch(counting, samples, part), EvaluationStep(metrics))
    values = metrics.compute({})
    assert values == pytest.approx({"loss": losses.mean(), "error": errors.mean()}, rel=1e-5)
    assert metrics.summary(values) == f"loss {losses.mean():.4f} error {errors.mean():.4f}"


def test_a_measure_that_is_undefined_for_a_sample_is_the_mean_of_the_others_and_an_infinite_one_stays():
    measured = {
        "loss": [1.0, 2.0, 3.0],
        "gap": [1.0, np.nan, 4.0],
        "never": [np.nan] * 3,
        "bias": [1.0, np.nan, -np.inf],
    }

    class Undefined(MeasuredTask):
        def measure(self, model, batch):
            return {name: paddle.to_tensor(values) for name, values in measured.items()}

    task, batch = Undefined(load([]).values), {"inputs": paddle.zeros([3])}
    terms = task.train_step(None, batch, StepPosition(1, 0, 1))
    assert {name: (float(term.sum), int(term.count)) for name, term in terms.items()} == {
        "loss": (6.0, 3),
        "gap": (5.0, 2),
        "never": (0.0, 0),
        "bias": (-np.inf, 2),
    }
    metrics = task.build_metrics()
    task.eval_step(None, batch, EvaluationStep(metrics))
    values = metrics.compute({})
    assert (values["loss"], values["gap"], list(metrics.find_undefined(values))) == (2.0, 2.5, ["never"])
    assert values["bias"] == -np.inf


PAIR = namedtuple("PAIR", "image label")


@pytest.mark.parametrize(
    "samples, expected",
    [
        ([(np.ones(2), 1), (np.zeros(2), 0)], {"inputs": np.float32([[1, 1], [0, 0]]), "targets": np.array([1, 0])}),
        ([[1.5, True]] * 2, {"inputs": np.float32([1.5, 1.5]), "targets": np.array([True, True])}),
        ([{"a": [1, 2], "b": 0.5}], {"a": np.array([[1, 2]]), "b": np.float32([0.5])}),
        ([PAIR([1.0], 2)], {"image": np.float32([[1]]), "label": np.array([2])}),
        ([np.ones(2, np.uint8)] * 2, {"inputs": np.ones((2, 2), np.uint8)}),
        ([(np.uint8(3), np.float64(2))], {"inputs": np.array([3]), "targets": np.float32([2])}),
        (
            [{"x": 1.5, "path": "a.png"}, {"x": 2, "path": Path("b")}],
            {"x": np.float32([1.5, 2]), "path": ["a.png", "b"]},
        ),
        ([{"x": "a"}, {"x": 1}], "the part 'x' of a sample is 'a', expected numbers"),
        ([paddle.ones([2])], {"inputs": np.ones((1, 2), np.float32)}),
        ([(1, 2, 3)], "a sample is tuple of 3 (1, 2, 3): return a dictionary"),
        ([(np.ones(2), "cat")], "the part 'targets' of a sample is 'cat', expected numbers"),
        (
            [(1.0, np.uint64(2**63 + 5))],
            "the part 'targets' of a sample has 9223372036854775813, expected numbers of int64",
        ),
        ([(np.ones(2), None)], "the part 'targets' of a sample is None, expected numbers"),
        ([np.ones(2), np.ones(3)], "the part 'inputs' has shapes (2,) and (3,) in a batch: give all one, or override"),
        ([{"a": 1}, {"b": 1}], "samples of a batch have the parts a and b: give all the same"),
    ],
)
def test_parts_of_samples_are_stacked_by_name_or_refused(samples, expected):
    if isinstance(expected, str):
        with pytest.raises(UserError, match=re.escape(expected)):
            stack_samples(samples)
        return
    batch = stack_samples(samples)
    assert batch.keys() == expected.keys()
    for name, array in batch.items():
        assert type(array) is type(expected[name])
        np.testing.assert_array_equal(array, expected[name], strict=True)


def test_a_sample_with_a_part_that_no_batch_can_have_is_refused_when_it_is_read(counting):
    check = get_sample_check(counting)
    check((np.ones(2), 1))
    for sample, said in (((np.ones(2), None), "'targets' of a sample is None"), ((np.nan, 1), "part 0 is nan")):
        with pytest.raises(BadSample, match=said):
            check(sample)
    other = type("Collating", (type(counting),), {"collate": lambda self, samples: {"sizes": np.ones(len(samples))}})
    get_sample_check(other(counting.config))((np.ones(2), None))


class Own(MeasuredTask):
    samples = measured = None

    def build_dataset(self, split, cache_folder):
        return self.samples

    def build_model(self, num_classes=None):
        return nn.Linear(1, 1)

    def measure(self, model, batch):
        return self.measured


def make_own(**attributes):
    return type("Own", (Own,), attributes)(SimpleNamespace(SEED=0))


@pytest.mark.parametrize(
    "measured, said",
    [
        (paddle.ones([3]), r"^Own.measure returns Tensor float32 \(3,\), expected a dictionary of tensors with 'loss'"),
        (
            {"error": paddle.ones([3])},
            "^Own.measure returns dict of 1 .*, expected a dictionary of tensors with 'loss'",
        ),
        (
            {"loss": paddle.ones([])},
            r"^Own.measure returns Tensor float32 \(\) as 'loss', expected a tensor with a number",
        ),
        ({"loss": paddle.ones([3, 1])}, r"as 'loss', expected a tensor with a number for each of the 3 samples: "),
        ({"loss": paddle.ones([3]), "e": 1.0}, "returns 1.0 as 'e', expected a tensor with a number for each of"),
        (None, "^Own.measure returns None, expected a dictionary"),
        (
            {"loss": paddle.ones([3], "int64")},
            r"^Own.measure returns Tensor int64 \(3,\) as 'loss', from which nothing is",
        ),
        ({"loss": paddle.ones([3]), 5: paddle.ones([3])}, "^measures of Own.measure: 5 is not a name: expected a text"),
        (
            {"loss": paddle.ones([3]), " ": paddle.ones([3])},
            "^measures of Own.measure: ' ' is not a name: expected a text",
        ),
        ({"loss": paddle.ones([3]), "time": paddle.ones([3])}, "^measures of Own.measure: 'time' is a field of the li"),
    ],
)
def test_measures_that_are_not_of_each_sample_are_refused(measured, said):
    with pytest.raises(UserError, match=said):
        make_own(measured=measured).train_step(None, {"inputs": paddle.ones([3, 1])}, StepPosition(1, 0, 1))


class Drawn:
    """Samples that draw random numbers from NumPy."""

    class_names = ["a"]

    def __len__(self):
        return 3

    def __getitem__(self, index):
        return np.random.normal()

    def describe(self, index):
        return f"drawn {index}"


def test_anything_with_a_length_and_an_index_is_a_dataset_whose_draws_repeat():
    samples = open_samples(make_own(samples=[(1.0, 2), (3.0, 4)]), "train", None)
    assert len(samples) == 2 and samples[1] == (3.0, 4) and samples.describe(1) == "sample 1"
    drawn = open_samples(make_own(samples=Drawn()), "train", None)
    assert drawn.describe(2) == "drawn 2" and drawn.class_names == ["a"]
    first = [drawn[index] for index in range(3)]
    np.random.seed(1)
    assert [drawn[index] for index in range(3)] == first and len(set(first)) == 3
    assert open_samples(make_own(samples=drawn), "train", None) is drawn


class Texts(Dataset):
    """Numbers that ``make_sample`` makes of texts."""

    def __len__(self):
        return 2

    def read(self, index):
        return f"{index}.5"

    def make_sample(self, sample):
        return float(sample)


class Doubled(TransformedDataset):
    def __init__(self):
        self.dataset = Texts(None, "train", None)

    def sample(self, index, generator):
        return 2 * self.dataset.read(index)


def test_a_dataset_that_a_task_creates_itself_has_the_adapter_too():
    assert open_samples(make_own(samples=Texts(None, "train", None)), "train", None)[1] == 1.5
    samples = open_samples(make_own(samples=Doubled()), "train", None)
    assert samples[1] == 3 and pickle.loads(pickle.dumps(samples))[0] == 1


class Stream(io.IterableDataset):
    def __iter__(self):
        return iter([1])


def test_what_a_users_samples_say_of_themselves_is_taken_over():
    class Weeks(list):
        groups_by = {"week": r"w(\d+)/"}
        labeled = False
        notices = ("two weeks",)

        def describe(self, index):
            return f"/data/w{index // 2}/{index}"

    samples = open_samples(make_own(samples=Weeks(range(4))), "val", None)
    assert samples.groups("week").names.tolist() == ["0", "0", "1", "1"]
    assert (samples.labeled, samples.notices, samples.identities()) == (False, ("two weeks",), None)
    placed = Weeks(range(4))
    placed.root = "/data"
    samples = open_samples(make_own(samples=placed), "val", None)
    assert samples.name(3) == "w1/3" and len(set(samples.identities())) == 4
    placed.describe = lambda index: index
    with pytest.raises(UserError, match="^Weeks describes a sample as 0: "):
        samples.describe(0)


@pytest.mark.parametrize("samples", [None, iter([1]), {"a": 1}, "abc", 3, Stream(), len])
def test_what_has_no_length_or_index_is_refused(samples):
    with pytest.raises(UserError, match="^Own.build_dataset returns .* for val, expected samples with a length and an"):
        open_samples(make_own(samples=samples), "val", None)


def test_any_task_without_samples_is_refused():
    class Bare(Task):
        def build_dataset(self, split, cache_folder):
            return []

    with pytest.raises(UserError, match="^Bare.build_dataset returns no samples for train$"):
        open_samples(Bare(SimpleNamespace(SEED=0)), "train", None)


def test_predictions_are_rows_of_files(tmp_path):
    for name in ("b.txt", "a.txt", ".hidden"):
        (tmp_path / name).write_text(str(len(name)))
    task = make_own(
        read_input=lambda self, path: float(Path(path).read_text()),
        predict=lambda self, model, batch: {"double": 2 * batch["inputs"], "is_long": batch["inputs"] > 5},
    )
    aspect = get_aspect(task, Predictable)
    inputs = aspect.open_inputs([str(tmp_path)], tmp_path)
    assert inputs.names == [f"{tmp_path}/a.txt", f"{tmp_path}/b.txt"]
    found = aspect.predict_step(None, make_batch(task, inputs, range(2)))
    assert [aspect.prediction_rows(each) for each in found] == [[{"double": 10.0, "is_long": False}]] * 2
    wrong = get_aspect(make_own(predict=lambda self, model, batch: batch["inputs"]), Predictable)
    with pytest.raises(UserError, match="^Own.predict returns Tensor .*, expected a dictionary of tensors with a num"):
        wrong.predict_step(None, {"inputs": paddle.ones([2])})
    with pytest.raises(UserError, match=r"Own lacks read_input\(path\): Read a file for a prediction"):
        get_aspect(make_own(), Predictable).open_inputs([str(tmp_path)], tmp_path).sample(0, None)


@pytest.mark.parametrize(
    "found, said",
    [
        (
            {"angle": paddle.ones([])},
            r"^Own.predict returns Tensor float32 \(\) as 'angle', expected a tensor with a num",
        ),
        ({"angle": paddle.ones([2, 1])}, r"^Own.predict returns Tensor float32 \(2, 1\) as 'angle', expected"),
        ({"is_up": paddle.ones([2]), "angle": ["up"] * 2}, r"^Own.predict returns list of 2 .* as 'angle', expected"),
    ],
)
def test_predictions_that_are_not_of_each_input_are_refused_by_name(found, said):
    aspect = get_aspect(make_own(predict=lambda self, model, batch: found), Predictable)
    with pytest.raises(UserError, match=said):
        aspect.predict_step(None, {"inputs": paddle.ones([2])})


def test_an_input_that_does_not_fit_the_network_is_refused_as_an_input():
    def predict(self, model, batch):
        return {"sum": model(batch["inputs"])[:, 0]}

    aspect, network = get_aspect(make_own(predict=predict), Predictable), nn.Linear(3, 1)
    assert len(aspect.predict_step(network, {"inputs": paddle.ones([1, 3])})) == 1
    for rows in (1, 4):
        with pytest.raises(BadSample, match=rf"^Own.predict of inputs Tensor float32 \({rows}, 2\): ValueError: "):
            aspect.predict_step(network, {"inputs": paddle.ones([rows, 2])})


def test_a_part_that_a_batch_lacks_is_refused_with_the_parts_that_it_has():
    batch = {"picture": paddle.ones([2, 1]), "angle": paddle.ones([2])}
    task = make_own(
        measure=lambda self, model, batch: {"loss": batch["angel"]},
        predict=lambda self, model, batch: {"angle": batch["image"]},
    )
    said = "^Own.measure reads the part 'angel' of a batch, expected one of picture, angle$"
    with pytest.raises(UserError, match=said):
        task.train_step(None, batch, StepPosition(1, 0, 1))
    with pytest.raises(UserError, match=said):
        task.eval_step(None, batch, EvaluationStep(task.build_metrics()))
    with pytest.raises(UserError, match="^Own.predict reads the part 'image' of a batch, expected one of picture, ang"):
        get_aspect(task, Predictable).predict_step(None, batch)
    parts = pickle.loads(pickle.dumps(NamedParts({"a": 1}, "Own.measure")))
    assert (dict(parts), parts.get("b"), parts.place) == ({"a": 1}, None, "Own.measure")
