"""The contracts of a task and its metrics stay small; each protocol has tasks that follow it and code that asks."""

import re
from functools import cache
from inspect import isclass
from types import SimpleNamespace

import pytest
from support.processes import ROOT

from paddlevit_dist.registry import lookup
from paddlevit_dist.runtime.lazy_names import import_object
from paddlevit_dist.tasks import protocols
from paddlevit_dist.tasks.metrics import Metrics
from paddlevit_dist.tasks.task import Task

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
    assert len(members) <= most, f"{sorted(members)}: ask for the new one in a protocol of tasks/protocols.py"


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
    return [lookup.resolve("task", name) for name in lookup.TASKS]


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
    assert len(members) <= 18, f"{members}: what one command asks for is an aspect (tasks/aspects.py)"
    assert task.__mro__.index(Task) <= 4, "at most three classes between a task and Task"
