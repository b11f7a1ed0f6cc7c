"""What users register, where it stands then, and what is refused."""

import importlib.util
import sys
from functools import partial

import pytest
from support.registrations import forgotten

from paddlevit_dist import UserError
from paddlevit_dist.core.registry import lookup, register
from paddlevit_dist.core.registry.names import REGISTRY
from paddlevit_dist.core.tasks import Dataset, Model, Predictable, Task, TaskAspect


class First:
    """A class of a user."""


class Second:
    """Another."""


class FirstModel(Model):
    """A network of a user."""

    def forward(self): ...


class SecondModel(FirstModel):
    """Another."""


@pytest.fixture(autouse=True)
def own_names():
    with forgotten():
        yield
        REGISTRY.kinds["transform"].clear()
        for kind in ("score_kind", "scene_format"):
            REGISTRY.kinds[kind].pop("mine", None)


KINDS = {
    "model": register.register_model,
    "dataset": register.register_dataset,
    "task": register.register_task,
    "transform": register.register_transform,
    "score_kind": register.register_score_kind,
    "scene_format": register.register_scene_format,
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_name_is_of_its_kind_and_another_class_needs_replace(kind):
    first, second = (FirstModel, SecondModel) if kind == "model" else (First, Second)
    KINDS[kind]("mine", first)
    KINDS[kind]("mine", first)
    assert lookup.resolve(kind, "mine") is first
    with pytest.raises(UserError) as refusal:
        KINDS[kind]("mine", second)
    line = str(refusal.value)
    assert line.startswith("test_register.py:") and line.endswith(": choose another name, or replace=True")
    assert f"{kind.replace('_', ' ')} 'mine' is registered twice (test_register.py:" in line
    assert lookup.resolve(kind, "mine") is first
    KINDS[kind]("mine", second, replace=True)
    assert lookup.resolve(kind, "mine") is second
    assert [entry for entry in REGISTRY.registrations if entry[1] == "mine"] == [(kind, "mine")]


def test_a_name_of_this_package_is_taken():
    with pytest.raises(UserError, match=r"dataset 'coco' is registered twice \(this package has one\): choose another"):
        register.register_dataset("coco", First)


def test_a_file_that_is_imported_again_registers_the_same_class(tmp_path):
    text = "class Net: pass\n\n\nclass Other: pass\nmake = lambda: 1\nother = lambda: 2\n"

    def load(name, more):
        (tmp_path / "again.py").write_text(f"{text}{more}def build(): pass\n")
        spec = importlib.util.spec_from_file_location(name, tmp_path / "again.py")
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    try:
        one, two = load("again_one", ""), load("again_two", "# a new line\n")
        for first, second, others in (("Net", "Net", "Other"), ("make", "make", "other"), ("build", "build", "Net")):
            register.register_dataset(first, getattr(one, first))
            register.register_dataset(first, getattr(two, second))
            assert REGISTRY.datasets[first] is getattr(two, second)
            with pytest.raises(UserError, match="registered twice"):
                register.register_dataset(first, getattr(one, others))
    finally:
        del sys.modules["again_one"], sys.modules["again_two"]


@pytest.mark.parametrize(
    ("target", "shown"),
    [(First, "First"), (partial(FirstModel), r"functools\.partial\(.*"), (lambda **_: FirstModel(), "<lambda>")],
    ids=["class", "partial", "lambda"],
)
def test_a_network_is_a_class_derived_from_model(target, shown):
    advice = r"derive one \('from paddlevit_dist.core.tasks import Model'\)"
    with pytest.raises(
        UserError, match=rf"test_register.py:\d+: model 'mine': {shown} is not a class .* Model: {advice}"
    ):
        register.register_model("mine", target)
    assert "mine" not in REGISTRY.models


@pytest.mark.parametrize(("name", "target"), [("", First), (3, First), ("mine", 3), ("mine", None)])
def test_what_cannot_be_named_is_refused(name, target):
    for kind in ("model", "callback"):
        with pytest.raises(UserError) as refusal:
            getattr(register, f"register_{kind}")(name, target)
        assert str(refusal.value).partition(": ")[2] == (
            f"register_{kind}({name!r}, {target!r}): expected a name, and a class or a function"
        )
        assert str(refusal.value).startswith("test_register.py:")
    assert not REGISTRY.registrations.get(("model", name))


def test_a_callback_and_a_location_are_registered_as_they_are():
    register.register_callback("mine", First)
    register.register_callback("mine", Second)
    assert REGISTRY.kinds["callback"]["mine"] is Second
    register.register_dataset("mine", "somewhere:Data")
    register.register_dataset("mine", "somewhere:Data")
    with pytest.raises(UserError, match="registered twice"):
        register.register_dataset("mine", "somewhere:Other")
    assert REGISTRY.registrations["dataset", "mine"].target == "somewhere:Data"


def test_the_tables_of_a_replaced_task_are_gone():
    tables = ("paddlevit_dist.images.settings:IMAGES", "paddlevit_dist.points.settings:TABLE")
    register.register_task("mine", First, tables)
    assert REGISTRY.task_tables["mine"] == list(tables) == list(REGISTRY.registrations["task", "mine"].tables)
    register.register_task("mine", Second, replace=True)
    assert "mine" not in REGISTRY.task_tables and REGISTRY.registrations["task", "mine"].tables is None


class Half(Dataset):
    """Cannot count."""

    def read(self, index):
        return index


class Silent(Model):
    """Cannot compute."""


class Deaf(TaskAspect, Predictable):
    """Predicts nothing."""

    def predict_step(self, model, batch):
        return []

    def open_inputs(self, inputs, cache_folder):
        return None


class Whole(Task):
    """Has all methods, and an aspect without rows."""

    build_dataset = collate = build_model = train_step = build_metrics = eval_step = print
    aspects = {"Predictable": Deaf}


@pytest.mark.parametrize(
    ("kind", "target", "lacks"),
    [
        ("dataset", Half, r"Half lacks __len__\(\): Return the number of samples"),
        ("model", Silent, r"Silent lacks forward\(\*inputs, \*\*options\): Compute the outputs that the task expects"),
        ("task", Whole, r"Deaf lacks prediction_rows\(prediction\): Convert the prediction of one input to rows"),
    ],
)
def test_a_method_that_is_missing_is_named_with_what_it_returns(kind, target, lacks):
    with pytest.raises(UserError, match=rf"^test_register.py:\d+: {kind} 'mine': {lacks}.*; add it, see docs/"):
        KINDS[kind]("mine", target)
    assert "mine" not in REGISTRY.kinds[kind]


class Counting(Model):
    """A network whose features are never asked for: a letter lacks in the name of their method."""

    def forward(self, images):
        return images

    def forward_feature(self, images):
        return images


class Helped(Counting):
    """A network that calls the method itself."""

    def forward(self, images):
        return self.forward_feature(images)


class Both(Counting):
    """A network that has the method that is meant, too."""

    def forward_features(self, images):
        return images


def test_a_name_that_nothing_reads_is_refused_by_the_one_that_is_meant():
    said = r"model 'mine': nothing reads Counting.forward_feature: did you mean forward_features\?"
    with pytest.raises(UserError, match=rf"^test_register.py:\d+: {said}"):
        register.register_model("mine", Counting)
    for each in (Helped, Both):
        register.register_model(f"mine_{each.__name__}", each)
    task = type("Named", (Whole,), {"aspects": {}, "best_metrics": ("error", False)})
    with pytest.raises(UserError, match=r"task 'mine': nothing reads Named.best_metrics: did you mean best_metric\?"):
        register.register_task("mine", task)


@pytest.mark.parametrize("tables", ["DATA", ["DAAT"], [], ["paddlevit_dist.images.settings:IMAGES"]])
def test_tables_of_a_task_are_a_list_of_places(tables):
    task = type("Named", (Whole,), {"aspects": {}})
    if tables and ":" not in tables[0]:
        with pytest.raises(
            UserError, match=r"task 'mine': tables=.*: expected a list of tables of keys, each a KeyTable"
        ):
            register.register_task("mine", task, tables=tables)
        assert "mine" not in REGISTRY.tasks
    else:
        register.register_task("mine", task, tables=tables)
        assert REGISTRY.task_tables["mine"] == tables


def test_no_registered_class_of_the_package_lacks_a_method():
    for kind, table in REGISTRY.kinds.items():
        for name in [*table]:
            lookup.resolve(kind, name)  # raises
