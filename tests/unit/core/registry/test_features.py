"""The rows of manifests exist, and a folder whose module is missing brings nothing."""

import inspect
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

import paddlevit_dist
from paddlevit_dist import UserError
from paddlevit_dist.core.commands import COMMANDS, import_command, list_commands
from paddlevit_dist.core.engine.evaluation import EvaluationObserver
from paddlevit_dist.core.engine.hooks import Hook
from paddlevit_dist.core.registry import extension_points, features, lookup
from paddlevit_dist.core.registry.extension_points import POINTS
from paddlevit_dist.core.registry.manifest import Manifest
from paddlevit_dist.core.registry.names import REGISTRY, locate
from paddlevit_dist.core.runtime.lazy_names import import_object
from paddlevit_dist.core.settings import key_tables


def locations(manifest: Manifest) -> list[str]:
    """All locations of a manifest."""
    kinds = [getattr(manifest, f"{kind}s") for kind in REGISTRY.kinds]
    tables = (*kinds, manifest.bridges, manifest.jobs, manifest.hooks, manifest.observers, manifest.functions)
    rows = [target for table in tables for target in table.values()]
    rows += [target for target, _ in (*manifest.commands.values(), *manifest.namings.values())]
    rows += [table for tables in manifest.task_tables.values() for table in tables]
    return [locate(manifest, target) for target in (*rows, *manifest.families, *manifest.key_tables)]


@pytest.mark.parametrize("manifest", REGISTRY.manifests, ids=lambda manifest: manifest.package)
def test_every_location_can_be_imported(manifest):
    assert locations(manifest)
    for location in locations(manifest):
        assert import_object(location) is not None


def test_every_manifest_of_the_package_is_listed():
    package = Path(paddlevit_dist.__file__).parent
    folders = {".".join(path.relative_to(package).parent.parts) for path in package.rglob("manifest.py")}
    assert folders - {"core.registry"} == set(features.FEATURES)  # there, the class is defined


@pytest.mark.parametrize("folder", ["core.no_such_folder", "core.runtime", "images.data"])
def test_a_feature_without_a_manifest_is_an_error_unless_its_folder_was_deleted(folder):
    with pytest.raises(ModuleNotFoundError, match=rf"lists {folder}, but there is no paddlevit_dist.{folder}.manifest"):
        features.find_manifest(folder)


def test_caches_of_a_deleted_folder_do_not_count(tmp_path, monkeypatch):
    (tmp_path / "extensions" / "old" / "__pycache__").mkdir(parents=True)
    monkeypatch.setattr(paddlevit_dist, "__path__", [str(tmp_path)])
    assert features.find_manifest("extensions.old") is None
    (tmp_path / "extensions" / "old" / "__init__.py").touch()
    with pytest.raises(ModuleNotFoundError, match="lists extensions.old"):
        features.find_manifest("extensions.old")


def test_only_the_bridges_import_the_bridges():
    """The rest has to work without them; it finds them by their manifest."""
    package = Path(paddlevit_dist.__file__).parent
    imports = r"^ *(?:from|import) [\w.]*\bbridges\b"
    texts = {path: path.read_text(encoding="utf-8") for path in package.rglob("*.py") if path.parent.name != "bridges"}
    assert [path for path, text in texts.items() if re.search(imports, text, re.MULTILINE)] == []


def test_every_feature_is_there():
    assert [manifest.package for manifest in REGISTRY.manifests] == [
        f"paddlevit_dist.{folder}" for folder in features.FEATURES
    ]


@pytest.mark.parametrize("target", REGISTRY.hooks.values(), ids=[*REGISTRY.hooks])
def test_a_hook_is_made_of_the_trainer(target):
    assert issubclass(import_object(target), Hook)
    assert list(inspect.signature(import_object(target)).parameters) == ["run"]


@pytest.mark.parametrize("target", REGISTRY.observers.values(), ids=[*REGISTRY.observers])
def test_an_observer_is_made_of_the_trainer(target):
    assert issubclass(import_object(target), EvaluationObserver)
    assert list(inspect.signature(import_object(target)).parameters) == ["run"]


def test_jobs_commands_and_namings_are_functions_of_one_argument():
    functions = [*map(import_object, REGISTRY.jobs.values()), *map(import_command, COMMANDS)]
    functions += [import_object(target) for target, _ in REGISTRY.namings.values()]
    for function in functions:
        assert len(inspect.signature(function).parameters) == 1, function


# How the core calls the functions of manifests.
CALLED_WITH = {
    "CompiledTrainingTransform": ["size", "scale", "ratio", "flip", "channels", "augment"],
    "FirstLayerFinder": ["run"],
    "accelerate": ["model"],
    "find_in_training": ["config", "datasets", "folder"],
    "compare_runs": ["runs"],
    "load_comparison_weights": ["run", "model"],
    "load_exported_layer": ["config", "task"],
    "open_exported": ["path"],
    "build_exported": ["config", "task"],
    "read_exported_about": ["path"],
    "parse_evaluated_argument": ["word"],
    "resized_cross_entropy": ["logits", "labels", "ignored", "weights"],
    "show_leaks": ["config", "task", "train", "folder"],
    "write_evaluated": ["intervals", "evaluation", "facts"],
    "write_evaluation_report": ["run", "recorder", "facts"],
    "list_galleries": ["run"],
    "write_last_page": ["folder", "stamp"],
    "write_scored": ["file", "scored", "results", "groups"],
    "describe_input": ["source"],
    "guess_dataset": ["path", "contents"],
    "guess images": ["path", "task", "place"],
    "guess points": ["path", "task", "place"],
    "guess volumes": ["path", "task", "place"],
    "guess images without labels": ["path"],
    "find images without labels": ["root", "shown"],
    "find images": ["root", "shown"],
    "find images with boxes": ["root", "shown"],
    "find images with label maps": ["root", "shown"],
    "guess images with keypoints": ["path"],
    "find images with keypoints": ["root", "shown"],
    "guess images with segments": ["path"],
    "find images with segments": ["root", "shown"],
    "metrics of pixels": ["names"],
    "gaussian_losses": ["maps", "cells", "weights", "deviation"],
    "move_toward": ["tensors", "goals", "share"],
    "normalized_linear": ["x", "weight", "norms"],
    "sample_maps": ["maps", "points", "repeats_border"],
    "metrics of points": ["names"],
    "explain_unsupported": ["name"],
    "explain_other_task": ["file"],
    "adapt_clone": ["settings", "known"],
    "refuse_clone_model": ["name", "origin"],
}


@pytest.mark.parametrize("name", REGISTRY.functions)
def test_a_function_takes_what_the_core_calls_it_with(name):
    inspect.signature(POINTS[name].require()).bind(*CALLED_WITH[name])


def test_every_point_is_brought_by_a_feature_and_asked_for():
    """A point is the value of a name, or of a table of them, in ``extension_points``; other files ask by that name."""
    assert set(REGISTRY.functions) == set(POINTS)
    package = Path(paddlevit_dist.__file__).parent
    texts = [path.read_text() for path in package.rglob("*.py") if path.name != "extension_points.py"]
    asked_for = {name for text in texts for name in re.findall(r"\b([A-Z]\w*)[.\[]", text)}
    for name, value in vars(extension_points).items():
        points = value.values() if isinstance(value, dict) and value is not POINTS else [value]
        if any(isinstance(point, extension_points.ExtensionPoint) for point in points):
            assert name in asked_for, f"nothing asks for {name}"


def test_commands_are_listed_by_their_first_word():
    names = list_commands()
    assert sorted(names) == sorted(COMMANDS)
    assert names.index("evaluate") + 1 == names.index("evaluate classes") and names.index(
        "inspect leaks"
    ) < names.index("doctor")


def test_keys_of_rows_are_those_of_the_features():
    keys = {key.name for table in key_tables.common_tables()[1:] for key in table.keys}
    assert {*REGISTRY.hooks, *REGISTRY.observers, *REGISTRY.jobs} <= keys
    assert all(
        table.is_optional or not table.check.__module__.endswith("settings") for table in key_tables.common_tables()[1:]
    )


def test_a_row_is_built_only_if_its_key_is_set():
    run = SimpleNamespace(config=dict.fromkeys([*REGISTRY.hooks, *REGISTRY.observers], False))
    assert lookup.build_set(REGISTRY.hooks, run) == lookup.build_set(REGISTRY.observers, run) == []
    assert lookup.find_job({"SELFTEST": False, "SEEDS": 3}) == "SEEDS"
    assert lookup.find_job({"SELFTEST": False, "SEEDS": None}) is None


def test_a_folder_needs_its_module_and_its_manifest(monkeypatch):
    from paddlevit_dist.extensions.cpu_kernels import manifest

    assert features.find_manifest("extensions.cpu_kernels") is manifest.MANIFEST
    for missing in ("a_module_that_nobody_has", "a_package_that_nobody_has.module"):
        monkeypatch.setattr(manifest, "MANIFEST", manifest.MANIFEST._replace(requires=("json", missing)))
        assert features.find_manifest("extensions.cpu_kernels") is None
    assert features.find_manifest("a_folder_that_was_deleted") is None
    assert features.find_manifest("a_room.a_folder_that_was_deleted") is None


def test_what_lies_in_an_absent_feature_is_absent_from_other_manifests(monkeypatch):
    manifest = Manifest("paddlevit_dist.images.segmentation", datasets={"a": "..detection.data:A", "b": ".data:B"})
    assert list(REGISTRY.locate_all(manifest, manifest.datasets)) == ["a", "b"]
    monkeypatch.setattr(REGISTRY, "absent", ["images.detection"])
    assert list(REGISTRY.locate_all(manifest, manifest.datasets)) == ["b"]


def test_an_absent_feature_brings_nothing_and_a_misspelt_function_is_refused(monkeypatch):
    monkeypatch.delitem(REGISTRY.functions, "accelerate")
    assert extension_points.ACCELERATE.find() is None and not extension_points.ACCELERATE.is_there
    with pytest.raises(
        UserError, match="^acme: function 'accelerated' is not one that the package calls: .*accelerate"
    ):
        extension_points.require_points(Manifest(functions={"accelerated": len}), "acme")


def test_locations_of_a_manifest_are_relative_to_its_package():
    manifest = Manifest("paddlevit_dist.images.detection", models={"a": ".task:A", "b": "..data:B", "c": "mine:C"})
    assert REGISTRY.locate_all(manifest, manifest.models) == {
        "a": "paddlevit_dist.images.detection.task:A",
        "b": "paddlevit_dist.images.data:B",
        "c": "mine:C",
    }
    assert locate(manifest, len) is len
