"""A user's module: a task of which nothing is in the package, with an own kind of scores."""

import numpy as np
import paddle.nn.functional as F
from paddle import nn

from paddlevit_dist import create_model, register_dataset, register_model, register_score_kind, register_task
from paddlevit_dist.core.intervals import means
from paddlevit_dist.core.tasks import (
    Dataset,
    LossTerm,
    Model,
    PerSampleMetrics,
    SampleTable,
    ScoreKind,
    Task,
    TaskTraits,
    TransformedDataset,
    dataset_class,
    join_arrays,
)


class Vectors(Dataset):
    """Four random numbers each, and their sum."""

    def __init__(self, split):
        self.first = {"train": 0, "val": 1000}[split]

    @classmethod
    def open(cls, config, split, cache_folder):
        return cls(split)

    def __len__(self):
        return 48

    def read(self, index):
        numbers = np.random.default_rng(self.first + index).random(4).astype("float32")
        return numbers, float(numbers.sum())

    def describe(self, index):
        return f"vector {self.first + index}"


class PlainVectors(TransformedDataset):
    def __init__(self, dataset):
        self.dataset = dataset

    def sample(self, index, generator):
        return self.dataset.read(index)


class Summing(Model):
    def __init__(self, num_classes=1):
        super().__init__()
        self.head = nn.Linear(4, 1)

    def forward(self, vectors):
        return self.head(vectors).squeeze(-1)


class Errors(PerSampleMetrics):
    lists = ("errors", "sums")

    def __init__(self):
        super().__init__()
        self.state, self.errors, self.sums = {"error": 0.0, "near": 0, "vectors": 0}, [], []

    def update(self, errors, sums):
        self.errors += errors
        self.sums += sums
        self.state["error"] += sum(errors)
        self.state["near"] += sum(error < 0.5 for error in errors)
        self.state["vectors"] += len(errors)

    def compute(self, state):
        number = max(state["vectors"], 1)
        return {"mean error": state["error"] / number, "near": 100 * state["near"] / number}

    def summary(self, values):
        return f"mean error {values['mean error']:.3f}{self.format_interval('mean error', 3)}"

    def per_sample(self):
        return [np.array(self.errors), np.array(self.sums)]

    def bootstrap_values(self, table, weights):
        return compute_means(table[0])(weights)

    def to_sample_table(self, table):
        return SampleTable("errors of sums", ["sum"], {"errors": table[0], "sums": table[1]})


def compute_means(errors):
    return means({"mean error": errors, "near": 100.0 * (errors < 0.5)})


class ErrorScores(ScoreKind):
    decimals = 3
    right_rate = "near"

    def recompute(self, parts, classes):
        return compute_means(join_arrays(parts, "errors"))

    def is_valid(self, arrays, samples, classes):
        return all(arrays[name].shape == (samples,) for name in ("errors", "sums"))

    def truth(self, arrays):
        return arrays["sums"]

    def hits(self, arrays, classes):
        return {"near": arrays["errors"] < 0.5}


class Adding(Task):
    best_metric = ("mean error", False)
    traits = TaskTraits(sample_name="vectors", normalizers_per_sample={"loss": 1})

    def build_dataset(self, split, cache_folder):
        return PlainVectors(dataset_class(self.config, Dataset).open(self.config, split, cache_folder))

    def build_model(self, num_classes=None):
        return create_model(self.config.MODEL.NAME, num_classes=1)

    def collate(self, samples):
        vectors, sums = zip(*samples)
        return {"vectors": np.stack(vectors), "sums": np.array(sums, "float32")}

    def train_step(self, model, batch, step):
        losses = F.smooth_l1_loss(model(batch["vectors"]), batch["sums"], reduction="sum")
        return {"loss": LossTerm(losses, len(batch["sums"]))}

    def eval_step(self, model, batch, step):
        errors = (model(batch["vectors"]) - batch["sums"]).abs()
        step.metrics.update(errors.tolist(), batch["sums"].tolist())

    def build_metrics(self):
        return Errors()


register_dataset("vectors", Vectors)
register_model("summing", Summing)
register_task("adding", Adding, tables=[])
register_score_kind("errors of sums", ErrorScores)
