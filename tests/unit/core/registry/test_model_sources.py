"""Names of models and weights of other packages reach the bridge that knows them, and no other names do."""

import sys
from types import SimpleNamespace

import pytest

from paddlevit_dist import UserError
from paddlevit_dist.core.registry import model_sources
from paddlevit_dist.core.registry.names import REGISTRY


@pytest.fixture(autouse=True)
def bridge(monkeypatch):
    own = SimpleNamespace(find_address=lambda name: f"address of {name}", list_names=lambda source: [f"{source}:net"])
    monkeypatch.setitem(sys.modules, "own_bridge", own)
    for table in ("sources", "bridges"):
        monkeypatch.setattr(REGISTRY, table, {"mine": "own_bridge", "timm": "own_bridge"})


@pytest.mark.parametrize(
    "name, bridged",
    [
        ("mine:Net.b", "mine:Net.b"),
        ("Mine:Net.b", "mine:Net.b"),
        ("TIMM:Net.b.c", "timm:Net"),
        ("other:net", None),
        ("mine:", None),
        ("mine", None),
        (":mine", None),
    ],
)
def test_a_source_is_before_the_colon(name, bridged):
    assert model_sources.find_bridged(name) == (bridged and (bridged, "own_bridge"))


def test_weights_have_an_address_if_a_source_names_them():
    names = ["mine:net", "mine:", "other:net", "net"]
    assert [model_sources.find_weights_address(name) for name in names] == ["address of mine:net", None, None, None]
    assert model_sources.list_bridged_models("mine") == ["mine:net"]
    with pytest.raises(UserError, match=r"^models of 'other:' cannot be listed: expected one of mine, timm$"):
        model_sources.list_bridged_models("other")


def test_files_and_weights_of_clones_are_for_the_feature_that_knows_them(monkeypatch):
    asked = []
    functions = {
        "explain_unsupported": lambda name: f"no {name}",
        "explain_other_task": lambda file: f"of {file}",
        "adapt_clone": lambda settings, known: ([*settings, *known], ["line"]),
        "refuse_clone_model": lambda name, origin: asked.append((name, origin)),
    }
    for there in (functions, {}):
        monkeypatch.setattr(REGISTRY, "functions", there)
        explained = model_sources.explain_unsupported("net"), model_sources.explain_other_task("a.yaml")
        assert explained == (("no net", "of a.yaml") if there else ("", ""))
        adapted = model_sources.adapt_clone([1], ["known"])
        assert adapted == (([1, "known"], ["line"]) if there else ([1], []))
        for name in ("paddlevit:net", "hf:net", None):
            model_sources.refuse_clone_model(name, "-pretrained")
    assert asked == [("paddlevit:net", "-pretrained")]
