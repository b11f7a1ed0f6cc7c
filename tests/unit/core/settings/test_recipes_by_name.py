"""-cfg=NAME: a file that exists, else the recipe of that name; BASE likewise."""

import pytest
from support.processes import ROOT
from support.registrations import forgotten

from paddlevit_dist import UserError
from paddlevit_dist.core.commands import inspect_recipes
from paddlevit_dist.core.runtime.environment import program
from paddlevit_dist.core.settings import load, recipes

CONFIGS = ROOT / "configs"


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_a_recipe_is_found_by_its_name_from_any_folder_with_its_base_files():
    by_path = load([f"-cfg={CONFIGS / 'vit_tiny_patch16_224.yaml'}"])
    assert load(["-cfg=vit_tiny_patch16_224"]).values == by_path.values != load([]).values
    assert load(["-cfg", "vit_tiny_patch16_224.yaml"]).sources == by_path.sources


def test_a_file_that_exists_wins(tmp_path):
    (tmp_path / "vit_digits").write_text("SEED: 77\n")
    (tmp_path / "vit_mnist.yaml").write_text("SEED: 78\n")
    assert load(["-cfg=vit_digits"]).values.SEED == 77
    assert load(["-cfg=vit_mnist.yaml"]).values.SEED == 78
    run = load(["-cfg=vit_mnist"])  # there is no file of just this name
    assert run.values.DATA.DATASET == "mnist"
    assert run.notices == [
        "-cfg=vit_mnist is the recipe of the package; use -cfg=./vit_mnist.yaml for the file in this folder"
    ]


def test_recipes_of_other_packages_are_found_after_the_packages_own(tmp_path, monkeypatch, capsys):
    module = "from pathlib import Path\nfrom paddlevit_dist import Manifest, register_feature\n"
    module += "register_feature(Manifest(recipe_folders=(str(Path(__file__).with_name('mine')),)))\n"
    (tmp_path / "its_recipes.py").write_text(module)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "its_run.yaml").write_text("# A run of its own.\nBASE: vit_digits\nSEED: 7\n")
    (tmp_path / "mine" / "vit_digits.yaml").write_text("SEED: 8\n")
    (tmp_path / "own.yaml").write_text("BASE: its_run\nTAG: x\n")
    with forgotten():
        with pytest.raises(UserError, match="there is neither a file nor a recipe its_run"):
            load(["-cfg=its_run"])
        run = load(["-cfg=its_run", "-import=its_recipes.py"])
        assert run.values.SEED == load(["-cfg=own.yaml"]).values.SEED == 7 and run.recipe == "its_run"
        assert load(["-cfg=vit_digits"]).values.SEED == 0
        inspect_recipes.run(["its_run"])
        assert capsys.readouterr().out.startswith("its_run  A run of its own\n")


@pytest.mark.parametrize("base", ["vit_digits", "vit_digits.yaml"])
def test_a_file_of_ones_own_can_start_from_a_recipe(tmp_path, base):
    (tmp_path / "mine.yaml").write_text(f"BASE: {base}\nSEED: 5\n")
    values = load(["-cfg=mine.yaml"]).values
    assert values.SEED == 5 and values.MODEL.EMBED_DIM == load(["-cfg=vit_digits"]).values.MODEL.EMBED_DIM == 96


def test_a_copy_of_a_recipe_finds_its_base_files(tmp_path):
    text = (CONFIGS / "vit_tiny_patch16_224.yaml").read_text(encoding="utf-8")
    (tmp_path / "copy.yaml").write_text(text, encoding="utf-8")
    assert "BASE" in text and load(["-cfg=copy.yaml"]).values == load(["-cfg=vit_tiny_patch16_224"]).values


@pytest.mark.parametrize(
    "cfg, message",
    [
        (
            "vit_digit",
            "-cfg: there is neither a file nor a recipe vit_digit: did you mean -cfg=vit_digits? "
            f"'{program('inspect recipes')}' lists all",
        ),
        (
            "./configs/vit_digits.yaml",
            "-cfg: there is no file configs/vit_digits.yaml; use -cfg=vit_digits for the recipe of that name",
        ),
        ("vit_digit.yaml", "-cfg: there is no file vit_digit.yaml: did you mean -cfg=vit_digits?"),
        (".", "-cfg: . is a folder: expected a YAML file"),
    ],
)
def test_what_is_not_there_is_told_with_the_closest(cfg, message):
    with pytest.raises(UserError) as refusal:
        load([f"-cfg={cfg}"])
    assert str(refusal.value) == message


def test_they_are_listed_with_what_they_are(capsys):
    inspect_recipes.run([])
    *lines, _, last = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == sorted(file.stem for file in CONFIGS.glob("*.yaml"))
    assert all(len(line.split()) > 3 for line in lines) and last.endswith(str(CONFIGS))
    longest = max(len(file.stem) for file in CONFIGS.glob("*.yaml"))
    assert {line.index(line.split(maxsplit=1)[1]) for line in lines} == {longest + 2}
    with pytest.raises(UserError, match="no recipe's name contains 'nothing'"):
        inspect_recipes.run(["nothing"])


def test_the_closest_yaml_file_is_suggested(tmp_path):
    for name in ("recipe.yaml~", "recipes.yml", "other.yaml"):
        (tmp_path / name).touch()
    said = recipes.explain_missing_file(f"{tmp_path}/./recipe.yaml")
    assert said == f"there is no file {tmp_path}/recipe.yaml: did you mean '{tmp_path}/recipes.yml'?"
    assert recipes.explain_missing_file(f"{tmp_path}/q") == f"there is no file {tmp_path}/q"
    assert recipes.explain_missing_file(f"{tmp_path}/.") == f"{tmp_path} is a folder: expected a YAML file"
