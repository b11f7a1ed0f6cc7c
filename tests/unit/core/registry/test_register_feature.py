"""Features that users register: what they bring, and names that are in use."""

import pytest
from support.registrations import forgotten

from paddlevit_dist import Key, Manifest, UserError, register_feature
from paddlevit_dist.core.registry import extension_points, lookup
from paddlevit_dist.core.registry.names import REGISTRY
from paddlevit_dist.core.settings.names import suggest_recipe
from paddlevit_dist.core.settings.table import find_keys

NOTE = Key("ACME_NOTE", None, "text", "file of notes", optional=True)
IMAGES, POINTS = "paddlevit_dist.images.settings:IMAGES", "paddlevit_dist.points.settings:TABLE"
FEATURE = Manifest(
    "acme",
    models={"acme_net": ".networks:Net"},
    aliases={"acme_network": "acme_net"},
    tasks={"acme_task": ".tasks:Task", "acme_other": ".tasks:Other"},
    task_tables={"acme_task": (IMAGES, POINTS), "acme_other": (POINTS,)},
    recipes={"acme": "vit_digits"},
    spellings={"model": {"acme": "acme_net"}},
    commands={"acme": (".work:hello", "greet")},
    namings={"acme_program": (".names:rename", "its names")},
    key_tables=([NOTE],),
    hooks={"ACME_NOTE": ".work:NoteHook"},
    functions={"accelerate": len},
)


@pytest.fixture(autouse=True)
def own_names():
    with forgotten():
        yield


def test_a_feature_brings_its_names_keys_and_hooks_once():
    register_feature(FEATURE)
    register_feature(FEATURE)
    assert REGISTRY.models["acme_net"] == REGISTRY.models["acme_network"] == "acme.networks:Net"
    assert lookup.find_name("model", "ACME") == "acme_net" and REGISTRY.aliases["acme_network"] == "acme_net"
    assert REGISTRY.tasks["acme_task"] == "acme.tasks:Task" and suggest_recipe("acme") == "vit_digits"
    assert (REGISTRY.task_tables["acme_task"], REGISTRY.task_tables["acme_other"]) == ([IMAGES, POINTS], [POINTS])
    assert REGISTRY.commands["acme"] == ("acme.work:hello", "greet")
    assert REGISTRY.namings["acme_program"] == ("acme.names:rename", "its names")
    assert REGISTRY.hooks["ACME_NOTE"] == "acme.work:NoteHook"
    assert extension_points.ACCELERATE.find() is len
    assert find_keys("detection")["ACME_NOTE"] == find_keys("classification")["ACME_NOTE"] == NOTE
    assert REGISTRY.manifests.count(FEATURE) == 1


@pytest.mark.parametrize(
    "feature, said",
    [
        (Manifest("b", models={"net_of_b": "b:Net", "resnet50": "b:Net"}), "model 'resnet50' is registered twice"),
        (Manifest("b", score_kinds={"boxes": "b:Kind"}), "score kind 'boxes' is registered twice"),
        (Manifest("b", commands={"train": ("b:run", "train otherwise")}), "command 'train' is registered twice"),
        (Manifest("b", namings={"transformers": ("b:rename", "mine")}), "naming 'transformers' is registered twice"),
        (Manifest("b", hooks={"REPORT": "b:Hook"}), "hook 'REPORT' is registered twice"),
        (
            Manifest("b", hooks={"MY_NOTE": "b:Hook"}),
            "hook 'MY_NOTE' is for a key that does not exist",
        ),
        (
            Manifest("b", functions={"write_evaluatd": len}),
            "function 'write_evaluatd' is not one that",
        ),
        (Manifest("b", key_tables=([Key("SEED", 3, "int", "another seed")],)), "b: key SEED exists already"),
        ("b", "register_feature('b'): expected a Manifest"),
    ],
)
def test_a_name_or_key_that_is_in_use_is_refused_with_file_and_line(feature, said):
    before = [*REGISTRY.models], [*REGISTRY.commands], [*REGISTRY.manifests]
    with pytest.raises(UserError, match=r"^test_register_feature\.py:\d+: ") as refused:
        register_feature(feature)
    assert said in str(refused.value)
    assert before == ([*REGISTRY.models], [*REGISTRY.commands], [*REGISTRY.manifests])


def test_a_folder_of_recipes_is_one_with_its_full_path(tmp_path):
    for folder in ("recipes", str(tmp_path / "absent")):
        with pytest.raises(UserError, match=f"recipe folder '{folder}' is not the full path of a folder: write str"):
            register_feature(Manifest(recipe_folders=(folder,)))
    register_feature(Manifest(recipe_folders=(str(tmp_path),)))
    assert REGISTRY.manifests[-1].recipe_folders == (str(tmp_path),)
