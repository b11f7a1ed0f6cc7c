"""The lines before a run's first step: data, devices, batch norm, model and updates, each counted."""

import contextlib
from types import SimpleNamespace

import paddle
import pytest
from paddle import nn
from support.thread_ranks import acting_as

from paddlevit_dist.core.data.sampler import MOST_IN_MEMORY, TrainingSampler
from paddlevit_dist.core.engine.compatibility import describe
from paddlevit_dist.core.engine.startup_log import (
    describe_batch_norm,
    describe_training,
    format_first_lines,
    format_training,
    start_run_log,
)
from paddlevit_dist.core.settings import load
from paddlevit_dist.core.tasks.listed_samples import ListedSamples
from paddlevit_dist.core.tasks.task import Task


class Counted(Task):
    """A task of samples that are called birds."""

    traits = Task.traits.__class__(sample_name="birds")

    def signature(self, samples=None):
        number = 0 if samples is None else len(samples) // 2
        named = {"classes": [f"bird\n{number}", "wren"]} if number == 15 else {}
        return {"number of classes": number, **named} if number else {}


class Samples(list):
    """Samples with a notice."""

    notices = ("one file is skipped",)


def config_of(*words):
    return load(list(words)).values


@pytest.fixture
def ranks():
    with contextlib.ExitStack() as stack:
        yield lambda number: stack.enter_context(acting_as(0, number))


SPLITS = {"train": Samples(range(1200)), "val": Samples(range(30))}


def first_lines(*words, splits=SPLITS):
    config = config_of(*words)
    return format_first_lines(config, Counted(config), splits)


def test_data_model_and_devices_are_told_first(ranks):
    ranks(3)
    lines = first_lines("-batch_size=8", "TRAIN.ACCUM_ITER", "2")
    assert lines[:4] == [
        "data: digits (no -data_path: it comes with the package)",
        "  train 1,200 birds",
        "  val 30 birds",
        f"model: {config_of().MODEL.NAME}",
    ]
    assert lines[4].startswith("devices: 3 CPU processes; effective batch 48 = 8 per process x 3 process(es) x 2 accum")
    assert first_lines("-data_path=/x", "DATA.DATASET", "unknown_birds")[0] == "data: unknown_birds (/x)"
    assert first_lines("DATA.DATASET", "unknown_birds")[0] == "data: unknown_birds (no -data_path)"
    own = {"train": ListedSamples(Samples(range(4)))}
    assert first_lines(splits=own)[0] == "data: Samples (from Counted.build_dataset)"


@pytest.mark.parametrize(
    "roots, ends, shared",
    [(("/a", "/a"), (4, 8), "2 of 4"), (("/a", "/a"), (6, 9), ""), (("/a", "/b"), (0, 6), "")],
    ids=["overlapping", "disjoint", "other folders"],
)
def test_samples_of_an_own_dataset_that_are_in_both_splits_are_reported(ranks, roots, ends, shared):
    class Birds(list):
        root = None

        def describe(self, index):
            return f"{self.root}/{self[index]}.png"

    ranks(1)
    splits = {}
    for split, root, numbers in zip(("train", "val"), roots, (range(6), range(*ends))):
        birds = Birds(numbers)
        birds.root = root
        splits[split] = ListedSamples(birds)
    lines = [line for line in first_lines(splits=splits) if line.startswith("warning")]
    assert len(lines) == bool(shared)
    assert all(f": {shared} birds of val are also in train, such as /a/4.png:" in line for line in lines)


@pytest.mark.parametrize(("val", "shared"), [(["v3/1", "v1/9", "v1/8"], 2), (["v3/1", "v4/2"], 0)])
def test_groups_that_are_in_both_splits_are_reported(ranks, tmp_path, val, shared):
    class Frames(list):
        def describe(self, index):
            return f"{self[index]}.png"

    ranks(1)
    train, table = ["v0/0", "v1/1", "v2/2"], tmp_path / "videos.csv"
    splits = {"train": ListedSamples(Frames(train)), "val": ListedSamples(Frames(val))}
    for known in ([*train, *val], val):  # a table of the evaluated samples alone says nothing of the others
        table.write_text("file,video\n" + "".join(f"{name}.png,{name[:2]}\n" for name in known))
        lines = first_lines("EVALUATION.GROUP", f"{table}:video", splits=splits)
        told = [line for line in lines if line.startswith("warning") and "of a video that train has, too" in line]
        assert len(told) == bool(shared and known is not val)
        assert all(f"warning: {shared} " in line for line in told)


@pytest.mark.parametrize("eval_size, number, batch", [("None", 1, 8), ("5", 1, 5), ("5", 4, 5)])
def test_an_evaluation_tells_its_own_batch(ranks, eval_size, number, batch):
    ranks(number)
    line = first_lines("-eval", "-pretrained=x", "-batch_size=8", "DATA.BATCH_SIZE_EVAL", eval_size)[4]
    devices = "1 CPU process" if number == 1 else "4 CPU processes"
    text = f"effective batch {batch * number} = {batch} per process x {number} process(es)"
    assert line == f"devices: {devices}; {text}"


def test_what_has_no_effect_on_a_cpu_is_told():
    told = "DETERMINISTIC has no effect on a CPU: a run repeats with the same processes and threads"
    assert told in first_lines("DETERMINISTIC", "True") and told not in first_lines("DETERMINISTIC", "False")


@pytest.mark.parametrize("has_numba", [True, False])
def test_what_is_not_installed_as_it_should_be_is_told(module_specs, set_versions, has_numba):
    if not has_numba:
        module_specs["numba"] = None
    assert not any("is untested" in line for line in first_lines())
    set_versions(paddle="9.8")
    *_, before, last = first_lines()
    assert before.startswith("numba is not installed: ") != has_numba and last.startswith("Paddle 9.8 is untested; ")


@pytest.mark.parametrize(
    "kind, number, size, steps, text",
    [
        ("sync", 1, 8, 1, "batch norm: statistics of 8 samples at a time"),
        ("local", 1, 1, 1, "batch norm: statistics of 1 sample at a time"),
        ("sync", 3, 8, 1, "batch norm: sync, statistics of 24 samples at a time (why)"),
        ("local", 3, 1, 1, "batch norm: local, statistics of 1 sample at a time (why)"),
        (
            "local",
            2,
            8,
            4,
            "batch norm: local, statistics of 8 samples at a time (why), each of the 4 accumulated "
            "micro-batches separately",
        ),
    ],
)
def test_batch_norms_tell_what_their_statistics_are_of(ranks, kind, number, size, steps, text):
    ranks(number)
    assert describe_batch_norm(config_of(f"-batch_size={size}", "TRAIN.ACCUM_ITER", str(steps)), kind, "why") == text


class Small(nn.Layer):
    """14 + 9 parameters, and statistics."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(6, 2), nn.Linear(2, 3)
        self.norm = nn.BatchNorm1D(3, weight_attr=False, bias_attr=False)


def sampler_of(samples, batch=8, **options):
    return TrainingSampler(Samples(range(samples)), batch, rank=0, world_size=1, seed=0, **options)


def training(samples=80, words=(), frozen=False, **options):
    config, model = config_of(*words), Small()
    for parameter in model.first.parameters() if frozen else ():
        parameter.stop_gradient = True
    return describe_training(config, Counted(config), model, sampler_of(samples, **options))


def test_training_tells_parameters_and_updates():
    assert training() == "training 23 parameters, 10 updates per epoch"
    assert training(frozen=True) == "training 9 parameters (14 more are fixed), 10 updates per epoch"
    assert training(8) == "training 23 parameters, 1 update per epoch"
    assert training(16) == "training 23 parameters, 2 updates per epoch"
    assert training(87).endswith(
        "10 updates per epoch; 7 of 87 birds are skipped in each, others each time: they do not fill an "
        "effective batch of 8"
    )
    assert training(87, ["DATA.CLASS_BALANCED", "True"]).endswith("; 80 draws from 87 birds (DATA.CLASS_BALANCED)")
    assert training(87, repeats=3).endswith(
        "; each reads 27 of 87 birds, others each time, 3 times (TRAIN.REPEATED_AUGMENT)"
    )


def test_the_state_of_a_training_adds_its_lines():
    def lines(*words, notice="", slow=None, enabled=False, samples=80):
        config = config_of(*words)
        average = None if slow is None else SimpleNamespace(describe_first_weights=lambda updates: f"{slow} {updates}")
        sampler = TrainingSampler(range(samples), 8, rank=0, world_size=1, seed=0)
        state = SimpleNamespace(
            precision=SimpleNamespace(notice=notice, enabled=enabled),
            sampler=sampler,
            ema=average,
            model=nn.Linear(2, 2),
            schedule=SimpleNamespace(total_updates=70),
        )
        return format_training(config, Counted(config), state, 70)

    first = "training 6 parameters, 10 updates per epoch"
    assert lines() == [first]
    computed = "the order of an epoch is computed, not stored: there are more than 16,777,216 samples"
    assert lines(samples=MOST_IN_MEMORY)[-1] != computed == lines(samples=MOST_IN_MEMORY + 1)[-1]
    assert lines(notice="float16", slow="first weights at") == [first, "float16", "first weights at 70"]
    told = f"TRAIN.BATCH_NORM sync: no effect: {config_of().MODEL.NAME} has no batch norm"
    assert lines("TRAIN.BATCH_NORM", "sync") == [first, told]
    half = "level O2: softmax and norms use the dtype of their input; weights and gradients are float32, as at O1"
    assert lines("AMP_LEVEL", "O2", enabled=True) == [first, half]
    assert lines("AMP_LEVEL", "O2") == lines("AMP_LEVEL", "O1", enabled=True) == [first]


@pytest.mark.parametrize("writes, tuning", [(True, "True"), (True, "False"), (False, "True")])
def test_the_record_of_a_run_has_the_facts_of_its_splits(ranks, other_paddle, writes, tuning):
    ranks(3)
    config = config_of("-batch_size=8", "SEED", "11", "CPU_TUNING", tuning)
    started = []
    log = SimpleNamespace(writes=writes, start=lambda *words: started.append(words))
    start_run_log(config, log, Counted(config), SPLITS)
    assert len(started) == writes
    transpose = paddle.Tensor.transpose
    other_paddle({"Tensor.transpose": lambda tensor, axes: transpose(tensor, axes) + 1})
    is_checked = writes and tuning == "True"
    with pytest.raises(RuntimeError, match="wrong transpose") if is_checked else contextlib.nullcontext():
        start_run_log(config, log, Counted(config), SPLITS)
    if not writes:
        assert started == []
        return
    text, facts, evaluates = started[0]
    assert "SEED: 11" in text and evaluates is False
    check = facts.pop("product_check")
    assert check["relative_error"] < 1e-5 if is_checked else check is None
    notes = list(Samples.notices)
    assert facts == {
        "processes": 3,
        "device": "cpu",
        "seed": 11,
        "effective_batch": 24,
        "gpu": None,
        "data": {
            split: {
                "holds": birds,
                "samples": birds,
                "classes": number,
                "class_names": names,
                "counts": None,
                "notes": notes,
            }
            for split, birds, number, names in (
                ("train", "1,200 birds", 600, None),
                ("val", "30 birds", 15, ["bird\\n15", "wren"]),
            )
        },
    }


def test_a_network_of_a_users_task_is_not_called_by_a_default_name():
    class Counting(Counted):
        def build_model(self, num_classes=None):
            return nn.Linear(2, 2)

    for words, name in (((), "Counting.build_model"), (("MODEL.NAME", "resnet18"), "resnet18")):
        config = config_of(*words)
        task = Counting(config)
        assert f"model: {name}" in format_first_lines(config, task, SPLITS)
        assert describe(config, task, {})["model"] == name
