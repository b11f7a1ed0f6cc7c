"""A repository at Hugging Face opens as the folder that it is, and no more of it is fetched than that needs."""

import io
import json
import shutil
import tarfile
from fnmatch import fnmatch

import pytest
from support.files.hub_files import IMAGE, classes, images, picture, write_parquet

from paddlevit_dist import UserError, open_dataset
from paddlevit_dist.core.settings import load
from paddlevit_dist.images.data.guessing import find_box_layouts, guess
from paddlevit_dist.images.data.hub import repository
from paddlevit_dist.images.data.hub.columns import HubChoices
from paddlevit_dist.images.data.hub.hub_images import HubImages
from paddlevit_dist.images.data.hub.opening import HubOptions
from paddlevit_dist.images.data.hub.repository import is_repository, parse_address

FEATURES = {"image": IMAGE, "label": classes()}


@pytest.fixture(autouse=True)
def remote(tmp_path, monkeypatch):
    """The files of hf:me/pets, as if they were far away; ``fetched`` has the names of those that are here."""
    root, here = tmp_path / "remote", tmp_path / "cache" / ("a" * 40)
    root.mkdir()

    def download(name, repo_type, revision, allow_patterns, local_files_only):
        if local_files_only:
            return str(here)
        assert (name, repo_type) == ("me/pets", "dataset")
        for file in filter(lambda each: each.is_file(), root.rglob("*")):
            relative = str(file.relative_to(root))
            if any(fnmatch(relative, pattern) for pattern in allow_patterns):
                (here / relative).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(file, here / relative)
        here.mkdir(parents=True, exist_ok=True)
        return str(here)

    names = lambda *words, **options: [str(file.relative_to(root)) for file in root.rglob("*") if file.is_file()]  # noqa: E731
    monkeypatch.setattr("huggingface_hub.list_repo_files", names)
    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    monkeypatch.setenv("PADDLEVIT_DIST_CACHE", str(tmp_path / "shared"))
    for cached in (repository._fetch, repository._list_names):
        cached.cache_clear()
    yield root
    for cached in (repository._fetch, repository._list_names):
        cached.cache_clear()


def fetched(remote):
    here = remote.parent / "cache" / ("a" * 40)
    return {str(file.relative_to(here)) for file in here.rglob("*") if file.is_file()}


def write(root, *names, content=None):
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(picture(1) if content is None else content)


def write_tar(path, labels):
    with tarfile.open(path, "w") as tar:
        for number, label in enumerate(labels):
            for suffix, content in (("jpg", picture(number, "JPEG")), ("cls", str(label).encode())):
                member = tarfile.TarInfo(f"{number:04}.{suffix}")
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))


def test_class_folders_open_as_a_folder(remote):
    kinds = [
        f"{split}/{name}/{number}.png" for split in ("train", "validation") for name in "ab" for number in range(5)
    ]
    write(remote, *kinds, "pets.py", "weights.bin")
    write(remote, "README.md", content=b"---\nlicense: mit\n---\n# Pets\n")
    train, val = (
        open_dataset("scratch_folder", split, data_path="https://huggingface.co/datasets/me/pets")
        for split in ("train", "val")
    )
    assert len(train) == len(val) == 10 and train.class_names == ["a", "b"]
    assert fetched(remote) == {*kinds, "README.md"}
    values = load(["-cfg=mae_vit_base_patch16_224", "-data_path=hf:me/pets"], "vit_digits").values.DATA
    assert values.DATASET == "folder" and values.DATA_PATH.endswith("a" * 40)
    with pytest.raises(UserError, match="^data path hf:me/pets: remove -dataset=folder"):
        open_dataset("scratch_folder", "train", data_path="hf:me/pets", dataset="folder")


def test_nobody_is_asked_where_there_is_no_network(remote, monkeypatch):
    write(remote.parent / "cache" / ("a" * 40), *(f"train/{name}/{number}.png" for name in "ab" for number in range(3)))
    monkeypatch.setattr("huggingface_hub.list_repo_files", None)
    monkeypatch.setenv("HF_DATASETS_OFFLINE", "1")
    assert guess("hf:me/pets").dataset == "folder" and len(fetched(remote)) == 6


def test_shards_of_tars_are_found(remote):
    for split, labels in (("train", [0, 1, 1]), ("val", [1, 0])):
        write_tar(remote / f"{split}-0000.tar", labels)
    dataset = open_dataset("scratch_folder", "train", data_path="hf:me/pets")
    assert [int(dataset.dataset[row][1]) for row in range(3)] == [0, 1, 1] and len(dataset) == 3


def test_boxes_in_cocos_format_open_as_a_folder(remote):
    write(remote, *(f"{split}2017/{number}.png" for split in ("train", "val") for number in range(8)))
    for split in ("train", "val"):
        rows = [{"id": number, "file_name": f"{number}.png", "width": 11, "height": 7} for number in range(8)]
        boxes = [{"id": 1, "image_id": 0, "category_id": 1, "bbox": [0, 0, 3, 3], "area": 9, "iscrowd": 0}]
        coco = {"images": rows, "annotations": boxes, "categories": [{"id": 1, "name": "cat"}]}
        write(remote, f"annotations/instances_{split}2017.json", content=json.dumps(coco).encode())
    [found] = find_box_layouts("hf:me/pets", "hf:me/pets")
    assert found.dataset == "coco" and found.path.endswith("a" * 40) and found.reason.startswith("hf:me/pets has")
    data = load(["-cfg=detr_shapes", "-data_path=hf:me/pets"], "vit_digits").values.DATA
    assert (data.DATASET, data.DATA_PATH) == ("coco", found.path) and len(fetched(remote)) == 18


def test_rows_are_fetched_for_one_configuration_and_keep_their_address(remote, tmp_path):
    configs = [{"config_name": name, "data_files": f"{name}/*.parquet"} for name in ("fine", "coarse")]
    write(remote, "README.md", content=f"---\nconfigs: {json.dumps(configs)}\n---\n".encode())
    for name in ("fine", "coarse"):
        write_parquet(remote / name / "train.parquet", {"image": images([1, 2]), "label": [0, 1]}, FEATURES)
    write(remote, "figures/a.png")
    found = guess("https://huggingface.co/datasets/me/pets/tree/main")
    assert (found.dataset, found.path) == ("hub", "hf:me/pets@main")
    assert fetched(remote) == {"README.md", "fine/train.parquet", "figures/a.png"}
    with pytest.raises(UserError, match="^hf:me/pets has several configurations, fine, coarse: choose one"):
        open_dataset("scratch_folder", "train", data_path="hf:me/pets")
    assert (
        len(
            HubImages(
                "hf:me/pets", "train", tmp_path, HubOptions(HubChoices(configuration="coarse"), HubImages.contents)
            )
        )
        == 2
    )
    assert "coarse/train.parquet" in fetched(remote)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["data.zip"], "^data path hf:me/pets has data.zip: unpack it where you copy it with 'hf download me/pets "),
        (["pets.py"], "^data path hf:me/pets has the script pets.py and no data files: scripts are never"),
        ([f"{number}.png" for number in range(200)], "^DATA.DATA_PATH hf:me/pets .* not recognized"),
    ],
)
def test_a_repository_is_refused_before_its_pictures_are_fetched(remote, names, message):
    write(remote, *names)
    write(remote, "README.md", content=b"# Pets\n")
    with pytest.raises(UserError, match=message) as raised:
        load(["-cfg=detr_shapes", "-data_path=hf:me/pets"], "vit_digits")
    assert "\n" not in str(raised.value) and "/tmp" not in str(raised.value) and len(fetched(remote)) <= 4


def test_addresses_of_pages_are_repositories_and_others_are_not():
    page = "https://huggingface.co/datasets/me/pets"
    for path in (page, f"{page}/", f"{page}/viewer/default/train?row=3", "huggingface.co/datasets/me/pets"):
        assert is_repository(path) and parse_address(path) == ("me/pets", None)
    assert parse_address(f"{page}/tree/v1.0/data") == parse_address("hf:me/pets@v1.0") == ("me/pets", "v1.0")
    assert parse_address(f"{page}/tree/refs%2Fconvert%2Fparquet") == ("me/pets", "refs/convert/parquet")
    for path in (f"{page}/resolve/main/train.tar", "https://example.com/datasets/me/pets", "datasets/me/pets"):
        assert not is_repository(path)
