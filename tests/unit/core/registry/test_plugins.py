"""Modules of users that join a run, in this process and in its workers, and entry points of installed packages."""

import os
import sys
from importlib import metadata
from pathlib import Path

import pytest

from paddlevit_dist import UserError
from paddlevit_dist.core.registry import plugins
from paddlevit_dist.core.registry.manifest import Manifest
from paddlevit_dist.core.registry.names import REGISTRY
from paddlevit_dist.core.registry.plugins import ModuleLocation
from paddlevit_dist.core.runtime.errors import OwnCodeError


@pytest.fixture(autouse=True)
def project(tmp_path, monkeypatch):
    """Change to a folder with modules; forget what a test imports."""
    package = tmp_path / "plug_package" / "inner"
    package.mkdir(parents=True)
    (package.parent / "__init__.py").write_text("")
    (package / "__init__.py").write_text("from .sizes import SIZE\n")
    (package / "sizes.py").write_text("SIZE = 3\n")
    (package / "data.py").write_text("from .sizes import SIZE\n")
    (tmp_path / "plug_things.py").write_text("import plug_other\n")
    (tmp_path / "plug_other.py").write_text("")
    (tmp_path / "plug_empty").mkdir()
    modules, path = dict(sys.modules), list(sys.path)
    monkeypatch.chdir(tmp_path)
    for name in ("_loaded", "_folders"):
        monkeypatch.setattr(plugins, name, [])
    monkeypatch.setattr(plugins, "_installed_are_loaded", False)
    yield tmp_path
    sys.path[:] = path
    for name in set(sys.modules) - set(modules):
        if name.startswith("plug_"):
            del sys.modules[name]


def refuse(*names: str, origin: str = "-import", kind: type = UserError) -> str:
    with pytest.raises(kind) as refusal:
        plugins.load(names, origin)
    assert type(refusal.value) is kind
    return str(refusal.value)


@pytest.mark.parametrize(
    ("name", "module", "folder"),
    [
        ("plug_things", "plug_things", "."),
        (" plug_things ", "plug_things", "."),
        ("plug_things.py", "plug_things", "."),
        ("./plug_things.py", "plug_things", "."),
        ("plug_package.inner.data", "plug_package.inner.data", "."),
        ("plug_package/inner/data.py", "plug_package.inner.data", "."),
        ("plug_package/inner/__init__.py", "plug_package.inner", "."),
        ("plug_package/inner", "plug_package.inner", "."),
        ("plug_package/../plug_things.py", "plug_things", "."),
    ],
)
def test_a_module_is_found_by_its_name_or_its_file(project, name, module, folder):
    plugins.load([name, name], "-import")
    assert plugins.collect_imports().modules == (ModuleLocation(module, str(project / folder)),)
    assert sys.path[0] == str(project) and sys.path.count(str(project)) == 1
    assert sys.modules[module].__file__.startswith(str(project))


def test_a_home_folder_is_expanded(project, monkeypatch):
    monkeypatch.setenv("HOME", str(project / "plug_package"))
    plugins.load(["~/inner/data.py"], "-import")
    assert sys.modules["plug_package.inner.data"].SIZE == 3


def test_a_worker_imports_the_same_modules_from_the_same_folders_in_the_same_order(project, tmp_path_factory):
    other = tmp_path_factory.mktemp("other")
    (other / "plug_second.py").write_text("")
    (other / "plug_other.py").write_text("IS_SECOND = True\n")
    plugins.load([str(other / "plug_second.py"), "plug_things"], "-import")
    imports, path = plugins.collect_imports(), list(sys.path)
    assert [module.name for module in imports.modules] == ["plug_second", "plug_things"]
    assert path[:2] == [str(project), str(other)]
    del sys.path[:2]
    for name in ("plug_second", "plug_things", "plug_other"):
        del sys.modules[name]
    plugins._loaded.clear()
    plugins._folders.clear()
    plugins.load_imports(imports)
    plugins.load_imports(imports)
    assert sys.path == path and plugins.collect_imports() == imports
    assert not hasattr(sys.modules["plug_other"], "IS_SECOND")


def test_folders_are_hidden_while_processes_are_spawned(project):
    before = list(sys.path)
    plugins.load(["plug_things"], "-import")
    with pytest.raises(ZeroDivisionError), plugins.folders_hidden():
        assert sys.path == before and str(project) not in sys.path
        raise ZeroDivisionError
    assert sys.path == [str(project), *before]


def test_what_is_not_imported_yet_is_found_by_its_last_name():
    plugins.load(["plug_package/inner/data.py"], "-import")
    assert plugins.find_missing(["data", "elsewhere/data.py", "x.data", "plug_things", "inner", "my/inner.py"]) == [
        "plug_things",
        "inner",
        "my/inner.py",
    ]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("  ", "-import needs the name of a module or of a file: -import=my_things or -import=my_things.py"),
        ("plug_empty/", "-import plug_empty/: {folder}/plug_empty is a folder without __init__.py: name a file in it"),
        (
            "plug_thing.py",
            "-import plug_thing.py: there is no file {folder}/plug_thing.py: did you mean plug_things.py?",
        ),
        ("./zzz.py", "-import ./zzz.py: there is no file {folder}/zzz.py"),
        ("no/zzz.py", "-import no/zzz.py: there is no file {folder}/no/zzz.py"),
        (
            "plug_thing",
            "-import=plug_thing: there is no module plug_thing in {folder}, nor is one installed: did you mean "
            "plug_things?",
        ),
        (
            "plug_packages.inner",
            "-import=plug_packages.inner: there is no module plug_packages in {folder}, nor is one installed: "
            "did you mean plug_package?",
        ),
        (
            "plug_package.outer",
            "-import=plug_package.outer: there is no module plug_package.outer in {folder}, nor is one installed: "
            "did you mean plug_package?",
        ),
        ("plug_empty", "-import=plug_empty: it is a folder without __init__.py: name a module in it"),
    ],
)
def test_a_module_that_is_not_there_is_told_in_a_line_with_the_closest(project, name, message):
    assert refuse("plug_other", name) == message.format(folder=project)
    assert plugins.find_missing(["plug_other"]) == []


def test_an_origin_in_a_file_is_named_with_the_module():
    assert refuse("plug_empty", origin="a.yaml:3: IMPORTS").startswith("a.yaml:3: IMPORTS plug_empty: it is a folder")


def test_a_folder_that_was_removed_is_told(project):
    (project / "gone").mkdir()
    os.chdir(project / "gone")
    (project / "gone").rmdir()
    assert refuse("plug_things") == "the current folder has been removed: change to another one"


def test_the_exception_of_a_module_has_its_traceback(project):
    Path("plug_broken.py").write_text("import plug_depth\n")
    Path("plug_depth.py").write_text("import a_module_that_nobody_has\n")
    Path("plug_leaves.py").write_text("import sys\nsys.exit('bye')\n")
    with pytest.raises(OwnCodeError) as refusal:
        plugins.load(["plug_broken"], "-import")
    lines = str(refusal.value).splitlines()
    assert lines[0].startswith(
        "-import=plug_broken raises ModuleNotFoundError when it is imported: No module named 'a_"
    )
    details = refusal.value.traceback
    assert details.startswith("Traceback") and details.rstrip().endswith("No module named 'a_module_that_nobody_has'")
    assert details.count("plug_broken.py") == details.count("plug_depth.py") == 1 and "plugins.py" not in details
    assert refuse("plug_leaves", kind=OwnCodeError) == "-import=plug_leaves raises SystemExit when it is imported: bye"


def test_a_name_that_is_registered_twice_stays_a_line():
    Path("plug_twice.py").write_text(
        "from paddlevit_dist import UserError\nraise UserError('x.py:3: model registered twice')\n"
    )
    assert refuse("plug_twice") == "-import=plug_twice: x.py:3: model registered twice"


@pytest.mark.parametrize(("name", "user"), [("yaml", "yaml/__init__.py"), ("time", "a part of Python itself")])
def test_a_file_that_has_the_name_of_a_library_is_refused(project, name, user):
    Path(f"{name}.py").write_text("")
    refusal = refuse(f"./{name}.py")
    assert refusal.startswith(f"-import=./{name}.py: {project}/{name}.py has the name of a module that is in use, ")
    assert refusal.endswith(f"{user}: rename it")


@pytest.mark.parametrize("is_link_first", [True, False])
def test_a_module_that_is_reached_by_two_paths_is_one(project, tmp_path_factory, is_link_first):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "folder").symlink_to(project)
    (elsewhere / "plug_other.py").symlink_to(project / "plug_other.py")
    for link in (elsewhere / "folder" / "plug_things.py", elsewhere / "plug_other.py"):
        paths = [str(link), str(project / link.name)]
        plugins.load(paths if is_link_first else paths[::-1], "-import")
    (elsewhere / "plug_other.py").unlink()
    (elsewhere / "plug_other.py").write_text("")  # another file of this name
    assert "plug_other.py has the name of a module that is in use" in refuse(str(elsewhere / "plug_other.py"))


def test_a_library_can_be_named():
    plugins.load(["json", "time"], "-import")
    assert [module.name for module in plugins.collect_imports().modules] == ["json", "time"]


class Point:
    def __init__(self, name, target):
        self.name, self.value, self.target = name, f"{name}_package:join", target

    def load(self):
        if isinstance(self.target, Exception):
            raise self.target
        return self.target


@pytest.mark.parametrize("has_one", [True, False])
def test_entry_points_are_loaded_once_and_a_broken_one_is_noted(monkeypatch, capsys, has_one):
    calls = []
    points = [
        Point("broken", ValueError("first\nsecond")),
        *[Point("joins", lambda: calls.append(1)), Point("module", os)] * has_one,
        *[Point("feature", Manifest("acme_point")), Point("last", lambda: calls.append(2))] * has_one,
    ]
    monkeypatch.setattr(REGISTRY, "manifests", [])
    monkeypatch.setattr(metadata, "entry_points", lambda group: points if group == "paddlevit_dist.plugins" else [])
    assert [plugins.load_installed(), plugins.load_installed()] == [has_one, False]
    assert calls == [1, 2] * has_one
    assert any(manifest.package == "acme_point" for manifest in REGISTRY.manifests) == has_one
    assert (
        capsys.readouterr().err == "note: the plugin broken (broken_package:join) cannot be loaded: ValueError: first\n"
    )
