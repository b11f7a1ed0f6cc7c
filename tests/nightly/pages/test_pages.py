"""Every command on every page, run from a copy of the repository in the order a reader meets it."""

import faulthandler
import os
import re
import shutil
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from nightly.pages.volumes_of_the_page import write_the_volumes_of_the_page
from support.chinese_pages import CHINESE_PAGES
from support.files import raw_scenes
from support.files.hub_files import write_parquet
from support.hosts.clones import copy_of_repository
from support.processes import ROOT, run_command
from support.trainings.runs import write_images

from paddlevit_dist.core.checkpoint.array_files import write_safetensors
from paddlevit_dist.core.settings import DEFAULT_RECIPE, load
from paddlevit_dist.core.tasks.model_factory import create_model

from .not_run import EXPLAINING, IN_TEXT, NOT_RUN, NOT_RUN_PAGES
from .reading import (
    PAGES,
    make_anchors,
    make_blocks,
    make_commands,
    make_commands_in_text,
    make_inline_commands,
    make_text,
)

CACHE = "cache_of_weights"
COMMIT = "0123456789" * 4
_SMALL = "-image_size=64 MODEL.EMBED_DIM 48 MODEL.DEPTH 2 MODEL.NUM_HEADS 4"

# What is appended to a command that would take minutes: the first pattern that is found in it.
_SHORTER = [
    (r"^make demo$", "DEMO_FLAGS=-epochs=1"),
    (r"^\./run_train_multi\.sh$", "-cfg=./configs/vit_digits.yaml -output=./output/digits -epochs=1"),
    (r"dist train.*-output=output/mine$", f"{_SMALL} -epochs=2"),
    (r"-output=output/first", "-epochs=1"),
    (r"-output=\./output/offline", f"{_SMALL} -epochs=1"),
    (r"-cfg=output/mine/config.yaml", ""),
    (r"-output=\./output/early", "MODEL.EMBED_DIM 32 MODEL.DEPTH 1 MODEL.NUM_HEADS 2 -epochs=3 TRAIN.PATIENCE 1"),
    (r"dist (inspect data|train).*_figures", "-epochs=1 DATA.SHAPES.TRAIN 32 DATA.SHAPES.VAL 8"),
    (r"inspect data", "-image_size=64"),
    (r"run_train.*-output=\./output/small", "-image_size=64 -epochs=1"),
    (r"-output=\./output/ten", "-epochs=1"),
    (r"-output=\./output/(four|mine|balls)", ""),
    (r"dist train.*(detr|b0)_shapes", "-epochs=1 DATA.SHAPES.TRAIN 32 DATA.SHAPES.VAL 8"),
    (r"dist train.*minkunet14", "-epochs=1 POINTS.ROOMS.TRAIN 8 POINTS.ROOMS.VAL 2"),
    (r"dist train.*pointgroup", "-epochs=1 POINTS.ROOMS.TRAIN 4 POINTS.ROOMS.VAL 2"),
    (r"dist evaluate.*(minkunet14|pointgroup)", "POINTS.ROOMS.VAL 2"),
    (r"landmark_unet3d.*-data_path", "-epochs=1 -ngpus=1"),
    (r"dist train.*landmark_unet3d", "-epochs=1 VOLUMES.CROP_SIZE [12,20,16] VOLUMES.UNET_WIDTH 2"),
    (r"dist evaluate.*landmark_unet3d", "VOLUMES.CROP_SIZE [12,20,16] VOLUMES.UNET_WIDTH 2"),
    (r"dist train.*volume_unet3d", "-epochs=1 VOLUMES.UNET_WIDTH 2 VOLUMES.UNET_DEPTH 2 VOLUMES.OVERLAP 0.1"),
    (r"dist evaluate.*volume_unet3d", "VOLUMES.UNET_WIDTH 2 VOLUMES.UNET_DEPTH 2 VOLUMES.OVERLAP 0.1"),
    (r"main_multi_gpu.*-cfg=\./plan.yaml", "-epochs=1 -ngpus=1 VOLUMES.UNET_WIDTH 2"),
    (r"run_eval.*-cfg=\./plan.yaml", "VOLUMES.UNET_WIDTH 2"),
    (r"run_train", "-epochs=1"),
]


@pytest.fixture(scope="module")
def clone(tmp_path_factory) -> Path:
    """With the environment that ``make`` would have made beside it."""
    folder = copy_of_repository(tmp_path_factory.mktemp("clone") / "paddlevit_dist")
    (folder / ".venv").symlink_to(sys.prefix)
    return folder


def bring_data(folder: Path) -> None:
    """What the pages take for granted: a reader's own images, scenes and volumes."""
    write_images(folder / "my_data", train=36, val=4)
    shutil.copytree(folder / "my_data" / "val", folder / "new_images")
    shutil.copytree(folder / "my_data" / "train", folder / "my_table")
    for split in ("train", "val"):
        files = sorted((folder / "my_data" / split).rglob("*.jpg"))
        pictures = [{"bytes": file.read_bytes(), "path": file.name} for file in files]
        columns = {"image": pictures, "label": [file.parent.name for file in files]}
        write_parquet(folder / "my_repository" / "data" / f"{split}-00000-of-00001.parquet", columns)
    images = sorted(path.relative_to(folder / "my_table") for path in (folder / "my_table").rglob("*.*"))
    rows = "".join(f"{path},{path.parent}\n" for path in images)
    (folder / "my_table" / "labels.csv").write_text(f"image,label\n{rows}", encoding="utf-8")
    # In the place of published weights, as if they had been fetched: of the model that _SMALL makes.
    fetched = folder / CACHE / "hub" / "models--timm--vit_small_patch16_224.augreg_in21k_ft_in1k"
    weights = fetched / "snapshots" / COMMIT / "model.safetensors"
    weights.parent.mkdir(parents=True)
    (fetched / "refs").mkdir()
    (fetched / "refs" / "main").write_text(COMMIT)
    small = create_model("vit_small_patch16_224", num_classes=1000, embed_dim=48, depth=2, num_heads=4)
    write_safetensors(weights, {name: value.numpy() for name, value in small.state_dict().items()})
    shutil.copy(weights, folder / "vit_small.safetensors")
    for number, split in enumerate(("train", "val")):
        raw_scenes.write_labeled_ply(folder / "my_scenes" / split / f"room_{number}.ply", seed=number)
        raw_scenes.write_pointgroup(folder / "pointgroup" / split, f"scene000{number}_00")
    for split, name in (("train", "scene0000_00"), ("val", "scene0001_00")):
        raw_scenes.write_scannet(folder / "scannet" / "scans" / name, name)
        (folder / "scannet" / f"scannetv2_{split}.txt").write_text(f"{name}\n")
    write_the_volumes_of_the_page(folder)


def write_command(folder: Path) -> Path:
    """A folder with ``paddlevit-dist`` as an installation would make it; of what is found where it is called."""
    (folder / "bin").mkdir(parents=True, exist_ok=True)
    command = folder / "bin" / "paddlevit-dist"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m paddlevit_dist "$@"\n', encoding="utf-8")
    command.chmod(0o755)
    return command.parent


class Reader:
    """Types one command after the other into a shell in the clone."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        python = Path(sys.executable).resolve().parent
        self.variables: dict[str, str] = {"PATH": f"{python}:/usr/bin:/bin", "PYTHONPATH": "", "VIRTUAL_ENV": ""}
        self.variables["PADDLEVIT_DIST_CACHE"] = self.variables["HF_HOME"] = str(folder / CACHE)
        self.variables["PATH"] = f"{write_command(folder / CACHE)}:{self.variables['PATH']}"

    def type(self, command: str) -> str:
        if command == ". .venv/bin/activate":
            environment = self.folder / ".venv"
            assert (environment / "bin" / "activate").is_file()
            self.variables.update(PATH=f"{environment}/bin:{self.variables['PATH']}", VIRTUAL_ENV=str(environment))
            return ""
        started = time.perf_counter()
        ended = run_command(["bash", "-c", command], folder=self.folder, **self.variables)
        print(f"{time.perf_counter() - started:5.1f} s  {command}")
        assert ended.code == 0, f"{command}\n{ended.out[-3000:]}\n{ended.err[-3000:]}"
        assert "Traceback" not in ended.err
        return ended.out


def shortened(command: str) -> str:
    for pattern, added in _SHORTER:
        if re.search(pattern, command):
            return f"{command} {added}".strip()
    return command


def test_the_commands_of_all_pages_run_one_after_the_other(clone, monkeypatch):
    faulthandler.cancel_dump_traceback_later()  # 70 commands take longer than a test may: each has a limit of its own
    monkeypatch.chdir(clone)
    reader = Reader(clone)
    bring_data(clone)
    (clone / "my_scenes.py").write_text(
        re.findall(r"```python\n(.*?)```", make_text("docs/tutorials/point_clouds.md"), re.DOTALL)[0]
    )
    commands = [c for page in PAGES if page not in NOT_RUN_PAGES for c in make_commands(page) if c not in NOT_RUN]
    typed = [shortened(command) for command in dict.fromkeys(commands)]  # what a reader has done is not done again
    for command in typed:
        reader.type(command)
    named = set(re.findall(r"-output=(?:\./)?output/([\w.]+)", "\n".join(typed)))
    named.remove("check")  # doctor only tries whether it can write there
    assert {path.name for path in (clone / "output").iterdir()} == named | UNNAMED_OUTPUTS
    assert (clone / "output" / "look" / "data.png").is_file()
    assert not list(clone.glob("core*"))


# Left in output/ by programs, demos and commands that name a file in it.
UNNAMED_OUTPUTS = {"demo", "exported", "features"}


def entry_commands() -> list[str]:
    return [command for command in NOT_RUN if "main_multi_gpu.py" in command or "./run_" in command]


@pytest.mark.parametrize("command", entry_commands())
def test_what_is_not_run_passes_show_config(command, clone):
    words = command.partition("main_multi_gpu.py")[2] or command.partition(".sh")[2]
    program = [sys.executable, "main_multi_gpu.py"] + (["-eval"] if "run_eval" in command else [])
    line = " ".join([*program, words, "-show_config"])
    ended = run_command(["bash", "-c", line], folder=clone)
    assert ended.code == 0, ended.err
    assert "effective batch" in ended.out


@pytest.mark.parametrize("page", PAGES)
def test_commands_in_sentences_are_those_of_a_block_or_listed(page):
    known = {command for other in PAGES for command in make_commands(other)} | set(NOT_RUN)
    for command in make_inline_commands(page):
        if page not in NOT_RUN_PAGES:
            assert command in known, f"{page}: `{command}` is run by no test"


def test_nothing_in_the_list_is_gone_from_the_pages():
    there = {c for page in PAGES for c in (*make_commands(page), *make_inline_commands(page))}
    assert set(NOT_RUN) <= there
    assert set(IN_TEXT) <= {c for page in PAGES for c in make_commands_in_text(page)}


@pytest.mark.parametrize("page", [page for page in PAGES if page not in NOT_RUN_PAGES])
def test_commands_in_blocks_of_text_are_run_elsewhere_or_have_a_reason(page):
    known = {command for other in PAGES for command in make_commands(other)} | set(NOT_RUN) | set(IN_TEXT)
    for command in make_commands_in_text(page):
        assert command in known, f"{page}: {command} is run by no test"


def test_tests_that_are_said_to_run_commands_exist():
    named = [path for reason in (*NOT_RUN.values(), *IN_TEXT.values()) for path in re.findall(r"tests/\S+\.py", reason)]
    assert len(named) > 10
    assert not [path for path in named if not (ROOT / path).is_file()]


def test_every_page_is_read_by_these_tests():
    pages = {str(path.relative_to(ROOT)) for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]}
    assert pages - EXPLAINING == {page for page in (*PAGES, *CHINESE_PAGES) if not page.startswith("benchmarks/")}
    for page in EXPLAINING:
        assert not make_commands(page)


def test_what_is_to_be_installed_can_be():
    """The package is on no registry: its extras are those of a clone, on the pages and in messages."""
    (extras,) = re.findall(r"^EXTRAS = \{(.*?)^\}", make_text("setup.py"), re.MULTILINE | re.DOTALL)
    known = set(re.findall(r'^    "(\w+)": ', extras, re.MULTILINE))
    assert {"cpu", "onnx", "volumes"} <= known
    sources = [str(path.relative_to(ROOT)) for path in (ROOT / "paddlevit_dist").rglob("*.py")]
    for name in (*PAGES, *CHINESE_PAGES, *EXPLAINING, *sources):
        text = " ".join(make_text(name).split())
        assert not re.search(r"pip install (-\S+ )*['\"]?paddlevit[-_]dist", text), f"{name}: it is on no registry"
        assert not re.search(r"paddlevit[-_]dist\[", text), f"{name}: an extra of what no registry has"
        assert set(re.findall(r"pip install '?\.\[(\w+)\]", text)) <= known, name


@pytest.mark.parametrize("chinese, english", CHINESE_PAGES.items())
def test_a_translation_has_the_same_code_tables_and_links(chinese, english):
    assert make_commands(chinese) == make_commands(english)
    code, same = ([block for block in make_blocks(page) if block[0] or page != chinese] for page in (chinese, english))
    if english == "README.md":  # comments after commands are in Chinese
        same = [block for block in same if block[0]]
    else:
        code = make_blocks(chinese)
    assert code == same
    for pattern in (r"^##+ ", r"^\|", r"\]\([^)#]*[)#]", r"^- ", r"^\d\. "):
        counts = [len(re.findall(pattern, make_text(page), re.M)) for page in (english, chinese)]
        assert counts[0] == counts[1], pattern
    assert set(make_inline_commands(chinese)) == set(make_inline_commands(english))


@pytest.mark.parametrize("page, own", CHINESE_PAGES.items())
def test_a_chinese_page_links_to_the_chinese_page_where_there_is_one(page, own):
    paths = {
        os.path.normpath(os.path.join(os.path.dirname(page), path))
        for path in re.findall(r"\]\(([^)#:]+)", make_text(page))
    }
    assert sorted(paths & {*CHINESE_PAGES.values()} - {own}) == []


@pytest.mark.parametrize("page", [*CHINESE_PAGES, *PAGES])
def test_links_and_files_that_a_page_names_exist(page):
    for target in re.findall(r"\]\(([^)]+)\)", make_text(page)):
        path, _, anchor = target.partition("#")
        if "://" not in target:
            found = os.path.normpath((ROOT / page).parent / path) if path else str(ROOT / page)
            assert os.path.exists(found), f"{page}: {target}"
            if anchor:
                assert anchor in make_anchors(os.path.relpath(found, ROOT)), f"{page}: {target}"


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page != "docs/guides/extending.md"]
)  # that one joins by -import
def test_programs_import_the_package_before_paddle(page):
    """Then they print no warning of Paddle's about a compiler cache that nobody needs."""
    for _, program in (block for block in make_blocks(page) if block[0] == "python"):
        ours, paddles = (
            re.search(rf"^(import|from) [^#\n]*\b{name}\b", program, re.M) for name in ("paddlevit_dist", "paddle")
        )
        assert not (ours and paddles) or ours.start() < paddles.start(), program


def test_the_example_that_needs_no_arguments_is_the_recipe_of_the_digits():
    values = load([], DEFAULT_RECIPE).values
    assert values.DATA.DATASET == "digits" and values.DATA.IMAGE_SIZE == 16 and values.MODEL.EMBED_DIM == 96
    assert os.path.samefile(DEFAULT_RECIPE, ROOT / "configs" / "vit_digits.yaml")
    assert np.isclose(values.TRAIN.BASE_LR, 2e-3)


@pytest.mark.parametrize("page", [*PAGES, *CHINESE_PAGES])
def test_brackets_of_commands_are_quoted_since_zsh_takes_them_for_names_of_files(page):
    commands = [*make_commands(page), *make_commands_in_text(page), *make_inline_commands(page)]
    for command in commands:
        bare = re.sub(r"'[^']*'|\"[^\"]*\"", "", command)
        assert not re.search(r"[A-Z][A-Z_]+ \[|=\[", bare), command
