"""Digests of code, by which machines of a run are compared."""

import importlib
import sys
from pathlib import Path

from paddle import nn
from support.registrations import forgotten

import paddlevit_dist
from paddlevit_dist.core.engine.source_digests import digest_layers, digest_sources, list_source_digests
from paddlevit_dist.core.registry import plugins
from paddlevit_dist.core.tasks.model_factory import create_model


def test_any_change_of_a_package_changes_its_digest(tmp_path):
    (tmp_path / "part").mkdir()
    (tmp_path / "part" / "one.py").write_text("x = 1\n")
    (tmp_path / "notes.txt").write_text("not code")
    first = digest_sources(tmp_path)
    (tmp_path / "notes.txt").write_text("others")
    assert digest_sources(tmp_path) == first
    (tmp_path / "part" / "one.py").write_text("x = 2\n")
    second = digest_sources(tmp_path)
    (tmp_path / "part" / "one.py").rename(tmp_path / "part" / "two.py")
    assert len({first, second, digest_sources(tmp_path)}) == 3


def test_the_digest_of_this_package_is_that_of_all_rooms():
    package = Path(paddlevit_dist.__file__).parent
    assert {"core", "images", "points", "volumes", "extensions"} <= {folder.name for folder in package.iterdir()}
    assert digest_sources() == digest_sources(package) == list_source_digests()["sources of paddlevit_dist"]


def test_modules_of_users_are_compared_too(tmp_path, monkeypatch):
    file = tmp_path / "things.py"
    file.write_text("x = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with forgotten():
        plugins.load([str(file)], "-import")
        before = list_source_digests()
        assert list(before)[0] == "sources of paddlevit_dist" and list(before)[-1] == "sources of things"
        file.write_text("x = 2\n")
        after = list_source_digests()
    del sys.modules["things"]
    assert before["sources of things"] != after["sources of things"]
    assert before["sources of paddlevit_dist"] == after["sources of paddlevit_dist"]


def test_a_module_without_a_file_has_no_digest():
    assert "errno" in sys.builtin_module_names
    with forgotten():
        plugins.load(["errno"], "-import")
        assert [module.name for module in plugins.collect_imports().modules][-1] == "errno"
        assert list(list_source_digests())[-1] != "sources of errno"


def test_layers_of_users_are_digested_by_their_files_also_inside_of_ours(tmp_path, monkeypatch):
    (tmp_path / "own_base.py").write_text("from paddle import nn\nclass Base(nn.Layer): pass\n")
    (tmp_path / "own_net.py").write_text("from own_base import Base\nclass Net(Base): pass\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    network = nn.Sequential(nn.Linear(2, 2), importlib.import_module("own_net").Net())
    first = digest_layers(network)
    (tmp_path / "own_base.py").write_text("from paddle import nn\nclass Base(nn.Layer): scale = 2\n")
    second = digest_layers(network)
    for module in ("own_net", "own_base"):
        del sys.modules[module]
    assert len(first) == len(second) == 2 and len({*first} & {*second}) == 1
    assert digest_layers(nn.Sequential(nn.Linear(2, 2))) == digest_layers(create_model("resnet18", 2)) == []
