"""The contracts of a task and its metrics stay small; each ability has tasks that have it and code that asks for it."""

import re
from functools import cache
from types import SimpleNamespace

import pytest
from support.processes import ROOT

from paddlevit_dist.registry import lookup
from paddlevit_dist.tasks import protocols
from paddlevit_dist.tasks.metrics import Metrics
from paddlevit_dist.tasks.task import Task

PACKAGE = ROOT / "paddlevit_dist"
ABILITIES = {
    name: ability
    for name, ability in vars(protocols).items()
    if isinstance(ability, type) and issubclass(ability, Task) and ability is not Task
}


def list_members(thing: object) -> set[str]:
    return {name for name in (*vars(type(thing)), *vars(thing)) if not name.startswith("_")}


@pytest.mark.parametrize(("made", "most"), [(Task(SimpleNamespace()), 12), (Metrics(), 5)])
def test_a_contract_fits_a_page(made, most):
    members = list_members(made)
    assert len(members) <= most, f"{sorted(members)}: make the new one an ability in tasks/protocols.py"


@cache
def find_users() -> dict[str, set[str]]:
    """Files that ask for each ability with ``isinstance``."""
    users: dict[str, set[str]] = {name: set() for name in ABILITIES}
    for file in PACKAGE.rglob("*.py"):
        for name in re.findall(r"\bisinstance\([^\n]*?, (\w+)\)", file.read_text(encoding="utf-8")):
            if name in users:
                users[name].add(str(file.relative_to(PACKAGE)))
    return users


@cache
def list_tasks() -> list[type[Task]]:
    return [lookup.resolve("task", name) for name in lookup.TASKS]


@pytest.mark.parametrize("name", ABILITIES)
def test_an_ability_names_the_code_that_asks_for_it(name):
    ability = ABILITIES[name]
    named = set(re.findall(r"``([\w/]+\.py)``", ability.__doc__))
    assert named == find_users()[name]
    parts_of = [other for other in ABILITIES.values() if ability in other.__bases__]
    assert named or len(parts_of) > 1, "nothing asks for it"
    assert f"| ``{name}`` |" in protocols.__doc__


@pytest.mark.parametrize("name", ABILITIES)
def test_each_method_of_an_ability_is_implemented(name):
    ability = ABILITIES[name]
    tasks = [task for task in list_tasks() if issubclass(task, ability)]
    assert tasks
    for member in vars(ability):
        if not member.startswith("_"):
            assert any(getattr(task, member) is not getattr(ability, member) for task in tasks), member


@pytest.mark.parametrize("task", list_tasks())
def test_a_task_implements_the_abilities_that_it_lists(task):
    assert not getattr(task, "__abstractmethods__", ())
