"""Names of model, data set and task: their spelling, the data set of a path, and what fits together."""

import json
from pathlib import Path

import pytest
from support.registrations import forgotten
from yacs.config import CfgNode

from paddlevit_dist import UserError
from paddlevit_dist.core.registry import lookup
from paddlevit_dist.core.registry.names import REGISTRY
from paddlevit_dist.core.registry.register import register_dataset, register_model, register_task
from paddlevit_dist.core.settings import load, names
from paddlevit_dist.core.settings.recipes import RecipeMissing
from paddlevit_dist.core.settings.table import COMMAND_LINE, ConfigView, KeySetting

DATASET, PATH, MODEL = "DATA.DATASET", "DATA.DATA_PATH", "MODEL.NAME"


def settle(source: str = COMMAND_LINE, **values: str) -> dict[str, KeySetting]:
    """Settings of keys by the last part of their name, each with an origin of its own."""
    keys = {"dataset": DATASET, "path": PATH, "model": MODEL, "task": "TASK"}
    return {keys[name]: KeySetting(keys[name], value, source, f"-{name}") for name, value in values.items()}


def tree(dataset: str = "folder", path: str | None = None, task: str = "classification", model: str = "resnet18"):
    return CfgNode({"DATA": {"DATASET": dataset, "DATA_PATH": path}, "MODEL": {"NAME": model}, "TASK": task})


@pytest.fixture(autouse=True)
def own_names():
    with forgotten():
        yield


def test_each_name_gets_its_registered_spelling_and_a_line():
    given = settle(model="hf:timm/resnet18.a1_in1k", dataset="ImageFolder", task="classification")
    accepted, notices = names.resolve_names(given)
    assert {name: setting.value for name, setting in accepted.items()} == {
        MODEL: "resnet18",
        DATASET: "folder",
        "TASK": "classification",
    }
    assert accepted[MODEL].origin == "-model" and given[MODEL].value == "hf:timm/resnet18.a1_in1k"
    assert notices == [
        "-model: MODEL.NAME 'hf:timm/resnet18.a1_in1k' is called 'resnet18' here, and does not load its weights: "
        "-pretrained=NAME does",
        "-dataset: DATA.DATASET 'ImageFolder' is called 'folder' here",
    ]
    assert names.resolve_names(settle(task="Detection", model="ResNet-18"))[1] == [
        "-model: MODEL.NAME 'ResNet-18' is called 'resnet18' here",
        "-task: TASK 'Detection' is called 'detection' here",
    ]
    with pytest.raises(UserError, match="^-dataset: DATA.DATASET: dataset 'cocoo' is not known: did you mean 'coco'"):
        names.resolve_names(settle(model="resnet18", dataset="cocoo"))


def choose(**values: str) -> tuple[str, str]:
    """The message and the recipe of the refusal."""
    with pytest.raises(RecipeMissing) as refusal:
        names.choose_recipe(list(settle(**values).values()), "usual")
    return str(refusal.value), refusal.value.recipe, refusal.value.reason


def test_a_recipe_is_suggested_for_the_data_that_are_named(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    for split in ("train", "val"):
        for name in ("ant", "bee"):
            folder = tmp_path / "mine" / split / name
            folder.mkdir(parents=True)
            (folder / "1.jpg").touch()
    (tmp_path / "else").mkdir()
    assert names.choose_recipe(list(settle(model="resnet18").values()), "usual") == "usual"
    told, recipe, reason = choose(dataset="FashionMNIST", path="~/mine")
    assert (
        recipe == "vit_mnist"
        and reason == ""
        and "-dataset 'FashionMNIST': no recipe is named: add -cfg=vit_mn" in told
    )
    assert choose(dataset="cityscapes")[1] == "segformer_b0_cityscapes" and choose(dataset="scannet")[1:] == (
        "minkunet34c_scannet",
        "",
    )
    assert choose(dataset="cifar10")[1] == names.suggest_recipe("images") == choose(path=str(tmp_path / "else"))[1]
    told, recipe, reason = choose(path="~/mine")
    assert told.startswith(
        "-path '~/mine': no recipe is named: add -cfg=finetune_folder, for example, or another that "
    )
    assert recipe == "finetune_folder" and "train" in reason
    register_dataset("own", object)
    assert names.choose_recipe(list(settle(dataset="own", path="~/mine").values()), "usual") is None


@pytest.mark.parametrize(
    ("task", "recipe"),
    [
        ("classification", "vit_digits"),
        ("linear_probe", "probe_linear"),
        ("multi_label", "multi_digits"),
        ("mae", "mae_digits"),
        ("self_distillation", "dino_digits"),
        ("detection", "detr_shapes"),
        ("image_segmentation", "segformer_b0_shapes"),
        ("panoptic_segmentation", "eomt_panoptic_shapes"),
        ("keypoint_heatmaps", "heatmap_figures"),
        ("keypoint_detection", "detrpose_figures"),
        ("semantic_segmentation", "minkunet14_synthetic_rooms"),
        ("pointgroup", "pointgroup_synthetic_rooms"),
        ("shape_classification", "mink_classifier_solids"),
        ("landmarks", "landmark_unet3d"),
        ("volume_segmentation", "volume_unet3d_phantoms"),
    ],
)
def test_a_task_alone_reads_its_own_recipe_whose_data_come_with_the_package(task, recipe):
    assert names.choose_recipe(list(settle(task=task).values()), "usual") == recipe
    values = load([f"-cfg={recipe}"]).values
    assert values.TASK == lookup.find_name("task", task) and lookup.is_bundled(values.DATA.DATASET)


def test_the_recipe_that_is_suggested_is_for_the_task_then_for_the_data():
    asked = [
        choose(dataset=dataset, task=task)[1]
        for task, dataset in (
            ("detection", "coco"),
            ("knn_probe", "folder"),
            ("keypoint_heatmaps", "coco_keypoints"),
            ("keypoint_detection", "coco_keypoints"),
            ("pointgroup", "scannet"),
            ("semantic_segmentation", "scannet"),
        )
    ]
    assert asked == [
        *("finetune_detector", "probe_knn", "finetune_keypoints", "detrpose_figures"),
        *("pointgroup_synthetic_rooms", "minkunet34c_scannet"),
    ]
    register_task("own", lookup.resolve("task", "classification"))
    for given in (settle(task="own"), settle(task="own", dataset="folder")):
        assert names.choose_recipe(list(given.values()), "usual") is None
    with pytest.raises(UserError, match="^-task: TASK: task 'own2' is not known"):
        names.choose_recipe(list(settle(task="own2").values()), "usual")


@pytest.mark.parametrize(
    ("dataset", "path", "value", "outcome"),
    [
        (None, "/data", "/data", True),
        (None, "/data", None, False),
        (None, None, "/data", False),
        ("folder", "/data", "/data", False),
        ("digits", "/data", "/data", True),
        ("digits", None, "/data", False),
    ],
)
def test_a_path_that_nothing_would_read_is_noticed(dataset, path, value, outcome):
    accepted = settle(**({"path": path} if path else {}))
    accepted |= settle("recipe.yaml", **({"dataset": dataset} if dataset else {}))
    assert names.reads_no_path(accepted, tree(path=value)) is outcome


def test_a_path_beside_a_drawn_data_set_is_refused():
    with pytest.raises(UserError) as refusal:
        names.reads_no_path(settle(path="/data", dataset="digits"), tree(path="/data"))
    assert str(refusal.value) == (
        "DATA.DATA_PATH /data (-path): dataset digits comes with the package and reads no path: remove the path, or "
        "name the dataset at that path"
    )


@pytest.fixture
def yolo(tmp_path) -> str:
    """A folder of images with boxes in the layout of YOLO."""
    (tmp_path / "images").mkdir()
    (tmp_path / "labels").mkdir()
    (tmp_path / "data.yaml").write_text("path: .\ntrain: images\nval: images\nnames: [ant, bee]\n")
    return str(tmp_path)


@pytest.mark.parametrize(
    ("dataset", "sources", "has_path", "outcome"),
    [
        ("coco", ("recipe.yaml", COMMAND_LINE), True, True),
        ("yolo", ("recipe.yaml", COMMAND_LINE), True, False),
        ("coco", (COMMAND_LINE, COMMAND_LINE), True, False),
        ("coco", ("recipe.yaml", "recipe.yaml"), True, False),
        ("coco", ("recipe.yaml", COMMAND_LINE), False, False),
        (None, ("recipe.yaml", COMMAND_LINE), True, False),
    ],
)
def test_boxes_of_another_layout_than_the_recipes_are_noticed(yolo, dataset, sources, has_path, outcome):
    path = yolo if has_path else f"{yolo}/none"
    accepted = settle(sources[1], path=path) | (settle(sources[0], dataset=dataset) if dataset else {})
    assert names.is_of_another_layout(accepted) is outcome
    assert not names.is_of_another_layout(settle(sources[0], dataset="coco"))


def test_boxes_are_named_where_classes_are_read(yolo):
    with pytest.raises(UserError, match=r"YOLO's labels.*\(-dataset=yolo\), and no images with classes"):
        names.is_of_another_layout(settle(path=yolo) | settle("recipe.yaml", dataset="folder"))


def test_a_folder_of_two_layouts_keeps_the_recipes(yolo):
    annotations = Path(yolo, "annotations")
    annotations.mkdir()
    content = {"images": [], "annotations": [], "categories": []}
    for split in ("train", "val"):
        (annotations / f"instances_{split}2017.json").write_text(json.dumps(content))
    assert sorted(each.dataset for each in lookup.find_layouts("voc", yolo)) == ["coco", "yolo"]
    accepted = settle(path=yolo) | settle("recipe.yaml", dataset="voc")
    assert not names.is_of_another_layout(accepted)


def test_the_data_set_of_a_path_is_guessed_and_told(yolo):
    for dataset, instead in (
        (None, ""),
        ("coco", " instead of coco (-dataset)"),
        ("synthetic_shapes", " instead of synthetic_shapes (-dataset), which reads no path"),
    ):
        values = tree("none", yolo, "detection")
        given = settle(path=yolo) | settle("recipe.yaml", **({"dataset": dataset} if dataset else {}))
        accepted, (notice,) = names.guess_dataset(given, values)
        setting = accepted[DATASET]
        assert (values.DATA.DATASET, setting.value, setting.source) == ("yolo", "yolo", "guessed from DATA.DATA_PATH")
        assert accepted[PATH] is given[PATH] and setting.origin.startswith("guessed: ")
        assert notice == f"dataset: yolo{instead}, since {setting.origin[len('guessed: ') :]}"


def test_files_that_are_not_recognized_are_told_with_the_data_sets_of_the_task(tmp_path):
    with pytest.raises(UserError) as refusal:
        names.guess_dataset(settle(path=str(tmp_path)), tree(path=str(tmp_path)))
    told = str(refusal.value)
    assert told.startswith(f"DATA.DATA_PATH {tmp_path} (-path): no dataset is named, and the files there are not ")
    listed = told.rpartition("name one with -dataset=NAME: ")[2].split(", ")
    assert {"folder", "cifar10", "table"} <= set(listed)
    assert not {"nnunet", "scenes", "modelnet40", "coco", "synthetic_shapes"} & set(listed)
    for task, named in (("volume_segmentation", "nnunet"), ("landmarks", "landmarks"), ("pointgroup", "scenes")):
        with pytest.raises(UserError, match=rf"\(-path\): .*-dataset={named}") as refusal:
            names.guess_dataset(settle(path=str(tmp_path)), tree(path=str(tmp_path), task=task))
        assert "cifar10" not in str(refusal.value)


@pytest.mark.parametrize("wrapped", ["", "inner"])
def test_a_folder_of_meshes_is_the_data_set_of_shapes(tmp_path, wrapped):
    mesh = tmp_path / wrapped / "cup" / "train" / "cup_0001.off"
    mesh.parent.mkdir(parents=True)
    mesh.write_text("OFF\n")
    values = tree("synthetic_solids", str(tmp_path), "shape_classification")
    accepted, _ = names.guess_dataset(settle(path=str(tmp_path)), values)
    assert values.DATA.DATASET == "modelnet40"
    assert accepted[PATH].value == values.DATA.DATA_PATH == str(tmp_path / wrapped)


def check(**values: str) -> str:
    settings = {name: values[name] for name in ("dataset", "model", "task", "path") if name in values}
    try:
        names.check_task_dataset_model(ConfigView(tree(**values), settle(**settings)))
    except UserError as error:
        return str(error)
    return ""


def test_task_data_set_and_model_are_for_the_same_kind_of_data():
    assert (
        check() == check(task="detection", dataset="voc") == check(task="detection", dataset="coco", model="vit") == ""
    )
    points = ", ".join(name for name in sorted(REGISTRY.datasets) if lookup.find_package("dataset", name) == "points")
    assert check(task="semantic_segmentation", dataset="digits", model="minkunet34c") == (
        "DATA.DATASET digits (-dataset) is for images, TASK semantic_segmentation (-task) for points: choose a recipe "
        f"for images, such as -cfg=vit_digits, or one of {points}"
    )
    assert check(dataset="scannet").startswith(
        "DATA.DATASET scannet (-dataset) is for points, TASK classification (default) for images: choose a recipe for "
        "points, such as -cfg=minkunet34c_scannet, or one of ade20k, "
    )
    assert check(model="minkunet34c") == (
        "MODEL.NAME minkunet34c (-model) is for points, TASK classification (default) for images: choose a recipe for "
        "points, such as -cfg=minkunet34c_scannet"
    )
    register_dataset("own", object)
    register_model("own_net", "somewhere:Own")
    assert check(dataset="own", model="own_net", task="pointgroup") == check(dataset="own", model="own_net") == ""


@pytest.mark.parametrize(
    ("dataset", "holds", "recipe", "task", "reads"),
    [
        ("coco", "images with boxes", "finetune_detector", "classification", "images"),
        ("cifar10", "images", "vit_tiny_patch16_224", "detection", "images with boxes"),
        ("digits", "images", "vit_digits", "image_segmentation", "images with label maps"),
        ("digits", "images", "vit_digits", "multi_label", "images with several labels"),
        ("multi_digits", "images with several labels", "multi_digits", "classification", "images"),
    ],
)
def test_annotations_are_those_that_the_task_reads(dataset, holds, recipe, task, reads):
    fitting = [name for name in sorted(REGISTRY.datasets) if reads in lookup.annotation_types("dataset", name)]
    assert check(dataset=dataset, task=task) == (
        f"DATA.DATASET {dataset} (-dataset) contains {holds}, but TASK {task} (-task) reads {reads}: choose a recipe "
        f"for {holds}, such as -cfg={recipe}, or one of {', '.join(fitting)}"
    )


def test_a_task_given_with_the_command_is_to_be_left_out():
    """The recipe for these data may be the one that it replaced the task of."""
    file = {"DATA.DATASET": KeySetting("DATA.DATASET", "folder", "recipe.yaml", "recipe.yaml:13")}
    for settings in ({}, file):
        with pytest.raises(UserError, match="leave out TASK for images, or choose one of hub, multi_digits, table$"):
            names.check_task_dataset_model(
                ConfigView(tree(task="multi_label"), {**settings, **settle(task="multi_label")})
            )
    assert check(task="multi_label", dataset="folder").endswith(
        "choose a recipe for images, such as -cfg=finetune_folder, or one of hub, multi_digits, table"
    )


@pytest.mark.parametrize(
    "model, learns, recipe",
    [
        ("detr_resnet50", "images with boxes", "detr_r50_coco"),
        ("segformer_b0", "images with label maps", "segformer_b0_shapes"),
        ("detrpose_small", "images with keypoints", "heatmap_figures"),
    ],
)
def test_a_network_of_other_annotations_is_for_its_own_tasks(model, learns, recipe):
    assert check(model=model) == (
        f"MODEL.NAME {model} (-model) is for {learns}, but TASK classification (default) reads images: choose a recipe "
        f"for {learns}, such as -cfg={recipe}"
    )
    assert check(model="detr_resnet50", task="detection", dataset="coco") == ""


def test_only_data_sets_that_say_so_and_users_are_read_from_an_address():
    address = "https://example.org/data"
    assert check(dataset="imagenet2012", path=address) == (
        f"DATA.DATA_PATH {address} (-path): dataset imagenet2012 reads files of this machine: add -dataset=tar for tar "
        "files of images with classes, or copy other data to this machine"
    )
    register_dataset("own", object)
    for dataset, task in (("tar", "classification"), ("unlabeled", "masked_autoencoder"), ("own", "classification")):
        assert check(dataset=dataset, task=task, path=address) == ""
    assert check(dataset="imagenet2012", path="/data") == ""
