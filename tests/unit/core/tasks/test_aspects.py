"""Aspects are found along the parents of a task's class, exist once for each task, and are pickled with it."""

import pickle
import sys
from types import SimpleNamespace

import pytest

from paddlevit_dist import UserError
from paddlevit_dist.core.tasks import DatasetSaving, Exportable, Predictable, Recomputable, Reportable, Task
from paddlevit_dist.core.tasks.aspects import TaskAspect, get_aspect, has_aspect
from paddlevit_dist.core.tasks.task_factory import require_asked_aspects


class Growing(TaskAspect, Recomputable):
    """Remembers what it was asked."""

    def __init__(self, task):
        super().__init__(task)
        self.asked = []

    def recomputed_layers(self, model):
        self.asked.append(model)
        return []

    def choose_layers(self):
        """Is no method of the protocol."""


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
    assert not any(name.startswith(__package__) and name.endswith(".missing") for name in sys.modules)


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


def test_a_method_of_the_class_of_an_aspect_that_would_never_be_called_is_an_error():
    with pytest.raises(UserError, match=r"^Shadowed.choose_layers is never called: it belongs to an aspect of Parent"):
        get_aspect(make(type("Shadowed", (Child,), {"choose_layers": print})), Recomputable)
    assert get_aspect(make(type("Other", (Child,), {"choose_others": print})), Recomputable)


class Predicting(TaskAspect, Predictable):
    """Predicts."""

    predict_step = open_inputs = prediction_rows = None


class Saving(Predicting, DatasetSaving):
    """Predicts and saves."""

    def save_predictions_as(self, layout):
        self.layout = layout


class Detecting(Task):
    """Names one class twice."""

    aspects = {"Predictable": Saving, "DatasetSaving": f"{__name__}:Saving"}


@pytest.mark.parametrize("cls", [Saving, type("DerivedSaving", (Saving,), {})])
def test_an_aspect_that_extends_another_is_the_same_object_in_derived_tasks(cls):
    task = make(type("Mine", (Detecting,), {"aspects": {"Predictable": cls}}))
    assert has_aspect(task, DatasetSaving)
    get_aspect(task, DatasetSaving).save_predictions_as("coco")
    assert type(get_aspect(task, Predictable)) is cls and get_aspect(task, Predictable).layout == "coco"


def test_an_aspect_that_extends_another_is_gone_where_a_derived_task_changed_the_other():
    task = make(type("Mine", (Detecting,), {"aspects": {"Predictable": Predicting}}))
    assert get_aspect(task, DatasetSaving) is None and not has_aspect(task, DatasetSaving)


def test_an_aspect_that_extends_another_and_is_named_alone_is_an_error():
    task = make(type("Mine", (Detecting,), {"aspects": {"DatasetSaving": type("Mine", (Saving,), {})}}))
    with pytest.raises(UserError, match=r"^Mine.aspects names DatasetSaving without Predictable, .* as both$"):
        get_aspect(task, DatasetSaving)


def test_names_of_aspects_and_methods_that_no_command_asks_for_are_found_without_imports():
    for cls in (Parent, Child, Exporting, Both, Detecting):
        require_asked_aspects(cls)
    with pytest.raises(
        UserError, match=r"^Mine.aspects: no command asks for Predictables: did you mean Predictable\?$"
    ):
        require_asked_aspects(type("Mine", (Detecting,), {"aspects": {"Predictables": Predicting}}))
    require_asked_aspects(type("Mine", (Detecting,), {"aspects": {"of another feature": Predicting}}))
    with pytest.raises(UserError, match=r"^Mine.export_parts is never called"):
        require_asked_aspects(type("Mine", (Parent,), {"export_parts": print}))
