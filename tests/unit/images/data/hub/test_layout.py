"""Where data files are: names of splits and configurations."""

import json
from pathlib import Path

import pytest

from paddlevit_dist import UserError
from paddlevit_dist.images.data.hub.layout import find_files, is_pattern, refuse_scripts


def touch(root: Path, *names: str) -> str:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"")
    return str(root)


def found(root: str, **options) -> dict[str, list[str]]:
    files = find_files(root, **options)
    return {split: [str(Path(path).relative_to(root)) for path in paths] for split, paths in files.splits.items()}


@pytest.mark.parametrize(
    ("names", "wanted"),
    [
        (("data/train-00001-of-00002.parquet", "data/train-00000-of-00002-9ab.parquet"), {"train": 2}),
        (("data/dev-00000-of-00001.parquet", "data/extra-00000-of-00001.parquet"), {"dev": 1, "extra": 1}),
        (("train.parquet", "validation.parquet", "test.parquet"), {"train": 1, "validation": 1, "test": 1}),
        (("default/train/0000.parquet", "default/test/0000.parquet"), {"train": 1, "test": 1}),
        (("a.parquet", "b.arrow", ".hidden/train.parquet"), {"train": 2}),
        (("imagefolder-train.arrow", "imagefolder-eval.arrow"), {"train": 1, "eval": 1}),
    ],
)
def test_names_of_files_tell_splits(tmp_path, names, wanted):
    assert {split: len(files) for split, files in found(touch(tmp_path, *names)).items()} == wanted


def test_a_card_names_configurations_and_files(tmp_path):
    tmp_path = tmp_path / "a [1]*"
    root = touch(tmp_path, "x/one.parquet", "x/two.parquet", "y/one.parquet", "y/notes.csv")
    configs = [
        {"config_name": "x", "data_files": [{"split": "train", "path": ["x/one*", "x/two.parquet"]}]},
        {"config_name": "y", "data_files": {"test": "y/**"}},
        {"config_name": "texts", "data_files": "y/notes.csv"},
    ]
    (tmp_path / "README.md").write_text(f"---\r\nconfigs: {json.dumps(configs)}\r\n---\r\nText\n")
    with pytest.raises(UserError, match="several configurations, x, y: choose one with DATA.TABLE.CONFIGURATION NAME$"):
        find_files(root)
    assert found(root, configuration="x") == {"train": ["x/one.parquet", "x/two.parquet"]}
    assert found(root, configuration="y") == {"test": ["y/one.parquet"]} and find_files(root, "y").configuration == "y"
    with pytest.raises(UserError, match="no configuration z .DATA.TABLE.CONFIGURATION.: it has x, y$"):
        find_files(root, "z")
    configs[1]["default"] = True
    (tmp_path / "README.md").write_text(f"---\nconfigs: {json.dumps(configs)}\n---\n")
    assert found(root) == {"test": ["y/one.parquet"]}


def test_json_older_than_cards_gives_types(tmp_path):
    features = {"image": {"_type": "Image"}, "label": {"_type": "ClassLabel", "names": ["ant", "bee"], "id": None}}
    root = touch(tmp_path, "train.parquet")
    (tmp_path / "dataset_infos.json").write_text(json.dumps({"plain_text": {"features": features, "splits": {}}}))
    assert find_files(root).features["label"].names == ("ant", "bee")
    card = "dataset_info:\n  features:\n  - {name: label, dtype: {class_label: {names: {'0': cow}}}}"
    (tmp_path / "README.md").write_text(f"---\n{card}\n---\n")
    assert find_files(root).features["label"].names == ("cow",)


def test_folders_are_configurations_if_no_split_or_card_names_them(tmp_path):
    root = touch(tmp_path, "fine/train-00000-of-00001.parquet", "coarse/train-00000-of-00001.parquet")
    assert found(root, configuration="fine") == {"train": ["fine/train-00000-of-00001.parquet"]}
    with pytest.raises(UserError, match="coarse, fine"):
        find_files(root)


@pytest.mark.parametrize("pattern", ["../other/*.parquet", "/etc/*.parquet"])
def test_a_card_names_nothing_outside_of_its_folder(tmp_path, pattern):
    root = touch(tmp_path / "own", "a.parquet")
    touch(tmp_path / "other", "b.parquet")
    (tmp_path / "own" / "README.md").write_text(f"---\nconfigs:\n- data_files: {pattern}\n---\n")
    with pytest.raises(UserError, match="outside of"):
        find_files(root)


def test_saved_folders_have_the_splits_that_they_list(tmp_path):
    state = {"_data_files": [{"filename": "data-00000-of-00001.arrow"}]}
    root = touch(tmp_path, "train/data-00000-of-00001.arrow", "odd name/data-00000-of-00001.arrow")
    for split in ("train", "odd name"):
        (tmp_path / split / "state.json").write_text(json.dumps(state))
    (tmp_path / "dataset_dict.json").write_text('{"splits": ["train", "odd name"]}')
    assert list(found(root)) == ["train", "odd name"]
    (tmp_path / "train" / "state.json").write_text(json.dumps({**state, "_indices_data_files": [{"filename": "i"}]}))
    with pytest.raises(UserError, match="flatten_indices"):
        find_files(root)
    (tmp_path / "dataset_dict.json").write_text('{"splits": ["../train"]}')
    with pytest.raises(UserError, match="expected a list of the folders"):
        find_files(root)


def test_splits_are_found_by_their_usual_words(tmp_path):
    files = find_files(touch(tmp_path, "train.parquet", "dev.parquet"))
    assert files.find_split("val") == ("dev", "") and files.find_split("dev") == ("dev", "")
    (tmp_path / "dev.parquet").rename(tmp_path / "test.parquet")
    name, note = find_files(str(tmp_path)).find_split("val")
    assert name == "test" and note.startswith("note: the val images are split test of")
    with pytest.raises(UserError, match="has no split 'odd'.*it has test, train$"):
        find_files(str(tmp_path)).find_split("odd")


def test_patterns_name_several_files(tmp_path):
    touch(tmp_path, "a/train-0.parquet", "b/train-1.parquet", "b/test-0.parquet")
    pattern = f"{tmp_path}/*/*.parquet"
    assert is_pattern(pattern) and {k: len(v) for k, v in find_files(pattern).splits.items()} == {"test": 1, "train": 2}
    assert (
        find_files(f"{tmp_path}/*.tar") is None
        and find_files(str(tmp_path / "a" / "train-0.parquet")).root == f"{tmp_path}/a"
    )


def test_scripts_are_never_executed(tmp_path):
    root = touch(tmp_path / "flowers", "flowers.py", "README.md")
    assert find_files(root) is None
    with pytest.raises(UserError, match="has the script flowers.py and no data files: scripts are never executed"):
        refuse_scripts(root)
