"""A configuration is loaded, described and written without Paddle and without the keys of other tasks."""

import re
import sys

import pytest
from support.processes import run_command


def test_nothing_here_imports_paddle(tmp_path):
    (tmp_path / "x.yaml").write_text("TRAIN: {BASE_LR: 3e-3}")
    script = (
        "import sys; from paddlevit_dist.core.settings import load, dump_yaml;"
        "c = load(['-cfg=x.yaml', '-amp']); c.describe(); dump_yaml(c.values);"
        "print(sorted(m for m in sys.modules if m.split('.')[0] in ('paddle', 'numpy', 'PIL')))"
    )

    done = run_command([sys.executable, "-c", script], timeout=600, folder=tmp_path, is_copy=False)

    assert done.code == 0, done.err
    assert done.out.strip() == "[]"


@pytest.mark.parametrize("recipe, package", [("vit_digits", "images"), ("pointgroup_synthetic_rooms", "points")])
def test_a_recipe_imports_keys_and_variants_of_its_own_task_only(recipe, package, tmp_path):
    script = (
        "import sys; from paddlevit_dist.core.settings import DEFAULT_RECIPE, load;"
        f"load(['-cfg={recipe}'], DEFAULT_RECIPE);"
        "print(*sorted(m.removeprefix('paddlevit_dist.') for m in sys.modules if m.startswith('paddlevit_dist.')))"
    )

    done = run_command([sys.executable, "-c", script], timeout=600, folder=tmp_path, is_copy=False)

    modules = done.out.split()
    assert done.code == 0 and f"{package}.settings" in modules, done.err
    others = {"images", "points", "volumes"} - {package}
    manifests = [name for name in modules if name.endswith(".manifest")]  # strings only
    modules = [name for name in modules if not any(manifest.startswith(name) for manifest in manifests)]
    assert [name for name in modules if name.split(".")[0] in others] == []
    assert [name for name in modules if re.search(r"paddlevit_(files|defaults)|(detection|segmentation)\.", name)] == []
