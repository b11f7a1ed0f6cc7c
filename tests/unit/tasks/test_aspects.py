"""Aspects are found along the parents of a task's class, exist once for each task, and are pickled with it."""

import pickle
import sys
from types import SimpleNamespace

import pytest

from paddlevit_dist.runtime.errors import UserError
from paddlevit_dist.tasks import Exportable, Predictable, Recomputable, Reportable, Task
from paddlevit_dist.tasks.aspects import TaskAspect, get_aspect, has_aspect


class Growing(TaskAspect, Recomputable):
    """Remembers what it was asked."""

    def __init__(self, task):
        super().__init__(task)
        self.asked = []

    def recomputed_layers(self, model):
        self.asked.append(model)
        return []


class OtherGrowing(Growing):
    """Of a derived task."""


class Parent(Task):
    """Has an aspect, and one whose module does not exist."""

    aspects = {"Recomputable": f"{__name__}:Growing", "Exportable": ".missing:Export"}


class Child(Parent):
    """Changes nothing."""


class Exporting(Parent, Exportable):
    """Is its own aspect for exports."""

    def export_parts(self):
        return "parts"


class Both(Task, Reportable, Exportable):
    """Is its own aspects."""

    def figures(self, dataset, records, model):
        return []

    def export_parts(self):
        return "parts"


class Renamed(Exporting):
    """Names an aspect again, which its parent was itself, and another one than the parent of that."""

    aspects = {"Recomputable": f"{__name__}:OtherGrowing", "Exportable": Growing}


def make(cls):
    return cls(SimpleNamespace())


@pytest.mark.parametrize(
    ("cls", "recompute", "export"), [(Parent, Growing, None), (Child, Growing, None), (Exporting, Growing, Exporting)]
)
def test_the_closest_class_decides(cls, recompute, export):
    task = make(cls)
    assert type(get_aspect(task, Recomputable)) is recompute and get_aspect(task, Recomputable).task is task
    assert export is None or get_aspect(task, Exportable) is task
    assert get_aspect(task, Predictable) is None and not has_aspect(task, Predictable)


def test_a_derived_class_names_other_aspects():
    task = make(Renamed)
    assert type(get_aspect(task, Recomputable)) is OtherGrowing and type(get_aspect(task, Exportable)) is Growing
    assert get_aspect(make(type("Last", (Renamed,), {})), Recomputable).__class__ is OtherGrowing


def test_a_task_that_derives_from_protocols_is_its_own_aspect():
    task = make(Both)
    assert get_aspect(task, Reportable) is get_aspect(task, Exportable) is task
    assert get_aspect(make(type("Derived", (Both,), {})), Exportable).export_parts() == "parts"


def test_an_aspect_is_imported_when_it_is_asked_for():
    assert has_aspect(make(Parent), Exportable)
    with pytest.raises(ModuleNotFoundError, match="missing"):
        get_aspect(make(Parent), Exportable)
    assert not any(name.endswith(".missing") for name in sys.modules)


def test_a_task_has_one_object_of_an_aspect_which_is_pickled_with_it():
    task, other = make(Parent), make(Parent)
    get_aspect(task, Recomputable).recomputed_layers("a model")
    assert get_aspect(task, Recomputable).asked == ["a model"] and get_aspect(other, Recomputable).asked == []
    worker = pickle.loads(pickle.dumps(task))
    assert get_aspect(worker, Recomputable).asked == ["a model"] and get_aspect(worker, Recomputable).task is worker


def test_a_method_that_would_never_be_called_is_an_error():
    shadowed = type("Shadowed", (Child,), {"recomputed_layers": lambda self, model: []})
    with pytest.raises(
        UserError, match=r"^Shadowed.recomputed_layers is never called: .* derive Shadowed also from Rec"
    ):
        get_aspect(make(type("Mine", (shadowed,), {})), Recomputable)
