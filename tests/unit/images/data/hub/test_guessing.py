"""Data files are found at a path, also where a recipe names another dataset, and what is wrong with them is told."""

import json

import pytest
from support.files.hub_files import IMAGE, classes, images, picture, write_parquet

from paddlevit_dist import UserError
from paddlevit_dist.core.settings import load
from paddlevit_dist.images.data.guessing import find_classes, guess

FEATURES = {"image": IMAGE, "label": classes()}
RECIPE = "vit_digits"


def find(path):
    """The dataset that replaces that of a recipe for class folders; empty: none does."""
    found = [found.dataset for found in find_classes(str(path), str(path))]
    return found if found != ["folder", "imagenet2012"] else []


def write_metadata(root, kind, labels, folders=("ant", "bee"), column="label"):
    """Images in folders, and a table beside the folders that names them."""
    rows = [(f"{folder}/{number}.png", label) for number, (folder, label) in enumerate(zip(folders, labels))]
    for name, _ in rows:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(picture(1))
    columns = {"file_name": [name for name, _ in rows], column: list(labels)}
    if kind == "csv":
        (root / "metadata.csv").write_text(
            f"file_name,{column}\n" + "".join(f"{name},{label}\n" for name, label in rows)
        )
    elif kind == "jsonl":
        lines = (json.dumps({"file_name": name, column: label}) for name, label in rows)
        (root / "metadata.jsonl").write_text("\n".join(lines))
    else:
        write_parquet(root / "metadata.parquet", columns)


@pytest.mark.parametrize(("kind", "dataset"), [("csv", "table"), ("jsonl", "hub"), ("parquet", "table")])
def test_labels_in_metadata_count_more_than_folders_of_other_names(tmp_path, kind, dataset):
    for split in ("train", "validation"):
        write_metadata(tmp_path / split, kind, ["cow", "ant"])
    assert guess(str(tmp_path)).dataset == dataset and find(tmp_path) == [dataset]
    words = ["-cfg=vit_tiny_patch16_224", f"-data_path={tmp_path}"]
    assert load(words, RECIPE).values.DATA.DATASET == dataset  # the recipe names another one
    assert load([*words, "-dataset=folder"], RECIPE).values.DATA.DATASET == "folder"


@pytest.mark.parametrize(
    ("labels", "column"), [(["ant", "bee"], "label"), (["a small one", "two of them"], "text")], ids=["equal", "text"]
)
def test_class_folders_stay_folders_if_their_metadata_say_the_same_or_nothing(tmp_path, labels, column):
    for kind in ("csv", "jsonl", "parquet"):
        for split in ("train", "val"):
            write_metadata(tmp_path / kind / split, kind, labels, column=column)
        assert guess(str(tmp_path / kind)).dataset == "folder" and find(tmp_path / kind) == []


def test_a_table_of_other_contents_beside_class_folders_is_not_read(tmp_path):
    write_metadata(tmp_path / "train", "csv", ["ant", "bee"])
    (tmp_path / "train" / "metadata.csv").write_text('odd\n1,2,"3\n')
    assert guess(str(tmp_path)).dataset == "folder"


@pytest.mark.parametrize("name", ["image", "jpg", "Photo"])
def test_bytes_under_a_usual_name_are_images(tmp_path, name):
    write_parquet(
        tmp_path / "train.parquet", {name: [picture(1), picture(2)], "label": ["a", "b"], "hash": [b"x", b"y"]}
    )
    assert find(tmp_path) == find(tmp_path / "train.parquet") == ["hub"]


def write_state(root):
    (root / "dataset_info.json").write_text("{}")
    (root / "state.json").write_text('{"_data_files": [{"filename": "a.arrow"}], "_indices_data_files": ["b.arrow"]}')


def write_script(root):
    (root / "README.md").write_text("# Data\n")
    (root / f"{root.name}.py").write_text("raise SystemExit\n")


def write_two_of_three(root):
    for number in (0, 2):
        columns = {"image": images([1]), "label": [0]}
        write_parquet(root / "data" / f"train-0000{number}-of-00003.parquet", columns, FEATURES)


def write_addresses(root):
    write_parquet(root / "train.parquet", {"url": ["https://example.com/a.png"], "label": ["a"]})


@pytest.mark.parametrize(
    ("write", "told"),
    [
        (write_state, "call flatten_indices before save_to_disk$"),
        (write_script, "scripts are never executed"),
        (write_two_of_three, r"train-00001-of-00003 is missing \(2 of 3 files are there\): copy all of them"),
        (write_addresses, r"no column of images among url \(string\), label \(string\)"),
        (lambda root: (root / "train.parquet").write_bytes(b"PAR1"), r"train.parquet cannot be read"),
    ],
)
def test_what_is_wrong_with_data_files_is_told_where_a_recipe_names_another_dataset(tmp_path, write, told):
    root = tmp_path / "data"
    root.mkdir()
    write(root)
    with pytest.raises(UserError, match=told):
        load(["-cfg=vit_tiny_patch16_224", f"-data_path={root}"], RECIPE)


def test_a_repository_that_cannot_be_fetched_is_told_where_a_recipe_names_another_dataset(monkeypatch, tmp_path):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    for cfg in ("vit_tiny_patch16_224", "detr_shapes", "dfine_m_coco", "eomt_ade20k_semantic_large_512", "vit_digits"):
        with pytest.raises(UserError, match="^data path hf:me/mine cannot be fetched: .* copy it with 'hf download"):
            load([f"-cfg={cfg}", "-data_path=hf:me/mine"], RECIPE)


def test_parts_of_data_that_a_card_or_a_pattern_names_are_read(tmp_path):
    write_two_of_three(tmp_path)
    (tmp_path / "README.md").write_text("---\nconfigs:\n- data_files: data/train-00000-of-00003.parquet\n---\n")
    assert find(tmp_path) == find(f"{tmp_path}/data/*.parquet") == ["hub"]


@pytest.mark.parametrize("cfg", ["vitpose_figures", "detrpose_hgnetv2_s_coco", "eomt_panoptic_shapes"])
def test_tasks_that_read_no_data_files_say_what_to_write(tmp_path, cfg):
    what = "segments" if "panoptic" in cfg else "keypoints"
    write_parquet(tmp_path / "train.parquet", {"image": images([1]), "label": [0]}, FEATURES)
    for path in (tmp_path, f"{tmp_path}/*.parquet"):
        with pytest.raises(UserError, match=f"{what} are not read from Parquet, .* in COCO's .*format .-dataset=coco_"):
            load([f"-cfg={cfg}", f"-data_path={path}"], RECIPE)


def test_a_recipe_without_labels_reads_images_in_rows_and_images_in_files_as_before(tmp_path):
    for folder in ("rows", "both"):
        write_parquet(tmp_path / folder / "train.parquet", {"image": images([1]), "label": [0]}, FEATURES)
    (tmp_path / "both" / "a.png").write_bytes(picture(1))
    (tmp_path / "state").mkdir()
    write_state(tmp_path / "state")
    for cfg in ("mae_vit_base_patch16_224", "dino_vit_small_patch16"):
        found = [load([f"-cfg={cfg}", f"-data_path={tmp_path}/{name}"], RECIPE).values for name in ("rows", "both")]
        assert [values.DATA.DATASET for values in found] == ["hub", "unlabeled"]
        with pytest.raises(UserError, match="call flatten_indices before save_to_disk$"):
            load([f"-cfg={cfg}", f"-data_path={tmp_path / 'state'}"], RECIPE)
