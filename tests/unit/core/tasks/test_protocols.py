"""The contracts of a task and its metrics stay small; each protocol has tasks that follow it and code that asks."""

import re
from functools import cache
from inspect import isclass
from types import SimpleNamespace

import numpy as np
import paddle
import pytest
from support.processes import ROOT

from paddlevit_dist.core.registry import lookup
from paddlevit_dist.core.registry.names import REGISTRY
from paddlevit_dist.core.runtime.lazy_names import import_object
from paddlevit_dist.core.tasks import protocols
from paddlevit_dist.core.tasks.metrics import Metrics
from paddlevit_dist.core.tasks.prediction import CheckpointMeta
from paddlevit_dist.core.tasks.task import Task

PACKAGE = ROOT / "paddlevit_dist"
OF_TASKS = {name: getattr(protocols, name) for name in ("SampleChecking", "Restorable")}
PROTOCOLS = {
    name: thing
    for name, thing in vars(protocols).items()
    if isclass(thing) and thing.__module__ == protocols.__name__ and name != "EnsembleMember"
}


def list_members(thing: object) -> set[str]:
    return {name for name in (*vars(type(thing)), *vars(thing)) if not name.startswith("_")}


@pytest.mark.parametrize(("made", "most"), [(Task(SimpleNamespace()), 12), (Metrics(), 5)])
def test_a_contract_fits_a_page(made, most):
    members = list_members(made)
    assert len(members) <= most, f"{sorted(members)}: ask for the new one in a protocol of core/tasks/protocols.py"


@cache
def find_users() -> dict[str, set[str]]:
    """Files that ask for each protocol; one aspect of a task may also use another, such as figures a prediction."""
    users: dict[str, set[str]] = {name: set() for name in PROTOCOLS}
    for file in PACKAGE.rglob("*.py"):
        if file.relative_to(PACKAGE).parts[0] in ("images", "points", "volumes"):
            continue
        for name in re.findall(r"\b(?:isinstance|[gh]\w+_aspect)\([^\n]*?, (\w+)\)", file.read_text(encoding="utf-8")):
            if name in users:
                users[name].add(str(file.relative_to(PACKAGE)))
    return users


@cache
def list_tasks() -> list[type[Task]]:
    return [lookup.resolve("task", name) for name in REGISTRY.tasks]


def find_followers(name: str) -> list[type]:
    """Classes of tasks, or of their aspects, that follow a protocol."""
    if name in OF_TASKS:
        return [task for task in list_tasks() if issubclass(task, OF_TASKS[name])]
    followers = []
    for task in list_tasks():
        for cls in task.__mro__:
            location = vars(cls).get("aspects", {}).get(name)
            followers += [import_object(location, cls.__module__.rpartition(".")[0])] if location else []
    return followers + [task for task in list_tasks() if issubclass(task, PROTOCOLS[name])]


@pytest.mark.parametrize("name", PROTOCOLS)
def test_a_protocol_names_the_code_that_asks_for_it(name):
    named = set(re.findall(r"``([\w/]+\.py)``", PROTOCOLS[name].__doc__))
    assert named and named == find_users()[name]
    assert f"| ``{name}`` |" in protocols.__doc__


@pytest.mark.parametrize("name", PROTOCOLS)
def test_each_method_of_a_protocol_is_implemented(name):
    protocol, followers = PROTOCOLS[name], find_followers(name)
    assert followers
    for member in vars(protocol):
        if not member.startswith("_"):
            assert any(getattr(cls, member) is not getattr(protocol, member) for cls in followers), member


@pytest.mark.parametrize("task", list_tasks())
def test_the_aspects_of_a_task_follow_their_protocols(task):
    assert not getattr(task, "__abstractmethods__", ())
    for cls in task.__mro__:
        for name, location in vars(cls).get("aspects", {}).items():
            aspect = import_object(location, cls.__module__.rpartition(".")[0])
            assert issubclass(aspect, PROTOCOLS[name]) and not getattr(aspect, "__abstractmethods__", ()), location


@pytest.mark.parametrize("task", list_tasks())
def test_a_task_is_what_trains_and_scores(task):
    members = [name for name in dir(task) if not name.startswith("_")]
    assert len(members) <= 21, f"{members}: what one command asks for is an aspect (core/tasks/aspects.py)"
    assert task.__mro__.index(Task) <= 4, "at most three classes between a task and Task"


class Counting(Task, protocols.Predictable, protocols.LogContributor):
    """Adds what it gets; the remark is about the samples."""

    remark = None

    def collate(self, samples):
        return {"values": np.array(samples), "names": ["a"]}

    def predict_step(self, model, batch):
        assert isinstance(batch["values"], paddle.Tensor)
        return [model(value) for value in batch["values"].tolist()]

    def describe_samples(self, dataset):
        return self.remark

    open_inputs = prediction_rows = None


class Drawn:
    def __len__(self):
        return 1234

    def sample(self, index, generator):
        return index + generator.random()


def test_a_sample_is_predicted_again_with_the_same_randomness():
    value = protocols.predict_again(Counting(None), Drawn(), 3, lambda value: -value)
    assert value == pytest.approx(-3 - np.random.default_rng(0).random())
    assert protocols.predict_again(Task(None), Drawn(), 3, abs) is None


def test_samples_are_described_by_the_task_else_counted():
    task = Counting(None)
    assert protocols.describe_samples(task, Drawn()) == "1,234 samples"
    task.remark = "9 scenes"
    assert protocols.describe_samples(task, Drawn()) == "9 scenes"
    assert protocols.describe_samples(Task(None), Drawn()) == "1,234 samples"


def test_what_weights_say_goes_to_tasks_that_remember_it():
    class Remembering(Task):
        def load_meta(self, meta):
            self.remembered = meta

    task, meta = Remembering(SimpleNamespace()), CheckpointMeta(2, ("wasp", "ant"), {}, {})
    protocols.load_meta(task, meta)
    assert task.remembered is meta
    protocols.load_meta(Task(SimpleNamespace()), meta)  # remembers nothing


def test_defaults_of_protocols_add_nothing():
    assert Counting.prediction_writer(None, "folder", []).writes_evaluations is False
    for method, expected in (
        (protocols.LogContributor.describe_samples, None),
        (protocols.Checkable.get_labels, None),
        (protocols.Checkable.labels_in, None),
        (protocols.Drawable.summarize_samples, ()),
    ):
        assert method(None, []) == expected
    log = protocols.LogContributor()
    assert (log.finish_epoch(), log.evaluation_lines()) == ([], [])
    assert protocols.Checkable.expected_losses(None) == {} and protocols.Drawable.image_legend(None) == ()
    assert protocols.Exportable.exported_model(None, 3) == protocols.Exportable.evaluated_model(None, 3) == 3
    assert protocols.CheckpointMatching().mismatch_hint("size", 3) == "use the same settings"
