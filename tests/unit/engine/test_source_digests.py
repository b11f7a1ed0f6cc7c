"""Digests of code, by which machines of a run are compared."""

import sys

from support.registrations import forgotten

from paddlevit_dist.engine.source_digests import digest_sources, list_source_digests
from paddlevit_dist.registry import plugins


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
