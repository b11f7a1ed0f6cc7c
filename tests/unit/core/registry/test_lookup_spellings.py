"""Model and dataset names as other tools spell them, and those tools' flags."""

import pytest
from support.refusals import refusal_of
from support.registrations import forgotten

from paddlevit_dist import UserError, create_model
from paddlevit_dist.core.registry.lookup import find_name, list_names, resolve
from paddlevit_dist.core.registry.register import register_dataset, register_model
from paddlevit_dist.core.settings import DEFAULT_RECIPE, load
from paddlevit_dist.core.tasks.model import Model
from paddlevit_dist.images.data.image_dataset import ImageDataset


class OwnModel(Model):
    """A user's."""

    def forward(self): ...

    def __init__(self, num_classes: int = 10) -> None:
        super().__init__()


class OwnImages(ImageDataset):
    """A user's."""

    __len__ = read = None


@pytest.mark.parametrize(
    "kind, theirs, ours",
    [
        ("model", "vit_b_16", "vit_base_patch16_224"),
        ("model", "ViT-B/16", "vit_base_patch16_224"),
        ("model", "vit_base_patch16_224.augreg_in21k_ft_in1k", "vit_base_patch16_224"),
        ("model", "google/vit-base-patch16-224", "vit_base_patch16_224"),
        ("model", "microsoft/swin-tiny-patch4-window7-224", "swin_tiny_patch4_window7_224"),
        ("model", "facebook/convnext-tiny-224", "convnext_tiny"),
        ("model", "SwinTransformer_tiny_patch4_window7_224", "swin_tiny_patch4_window7_224"),
        ("model", "PVT_V2_B2", "pvt_v2_b2"),
        ("model", "ResNet-50", "resnet50"),
        ("model", "microsoft/resnet-101", "resnet101"),
        ("model", "resnet18.tv_in1k", "resnet18"),
        ("model", "MinkUNet34C", "minkunet34c"),
        ("dataset", "ImageFolder", "folder"),
        ("dataset", "imagenet-1k", "imagenet2012"),
        ("dataset", "CIFAR-10", "cifar10"),
        ("dataset", "FashionMNIST", "fashion_mnist"),
    ],
)
def test_other_spellings_are_understood(kind, theirs, ours):
    assert find_name(kind, theirs) == ours


def test_every_registered_name_is_itself():
    names = list_names("model")
    assert [find_name("model", name) for name in names] == names


def test_a_users_own_class_is_meant_where_its_name_is_another_spelling_of_ours():
    with forgotten():
        register_model("vit_b_16", OwnModel)
        register_dataset("imagenet", OwnImages)
        assert isinstance(create_model("vit_b_16"), OwnModel)
        assert resolve("dataset", "imagenet") is OwnImages
    assert find_name("dataset", "imagenet") == "imagenet2012"


def test_the_configuration_holds_our_name_and_says_so():
    run = load(["MODEL.NAME", "ViT-B/16"], DEFAULT_RECIPE)
    assert run.values.MODEL.NAME == "vit_base_patch16_224"
    assert any("'ViT-B/16' is called 'vit_base_patch16_224' here" in notice for notice in run.notices)


@pytest.mark.parametrize(
    "name, weights",
    [
        ("hf:timm/resnet18.a1_in1k", "hf:timm/resnet18.a1_in1k"),
        ("hf-hub:timm/resnet18.a1_in1k", "hf-hub:timm/resnet18.a1_in1k"),
        ("https://huggingface.co/timm/resnet18.a1_in1k", "https://huggingface.co/timm/resnet18.a1_in1k"),
        ("timm/resnet18.a1_in1k", "hf:timm/resnet18.a1_in1k"),
        ("resnet18.a1_in1k", "hf:timm/resnet18.a1_in1k"),
        ("microsoft/resnet-18", "hf:microsoft/resnet-18"),
        ("/data/weights/resnet18.pdparams", "/data/weights/resnet18.pdparams"),
        ("resnet18.safetensors", "resnet18.safetensors"),
    ],
)
def test_a_model_is_not_built_with_fresh_weights_under_the_name_of_others(name, weights):
    assert refusal_of(create_model, name) == (
        f"create_model: {name} names weights, but a model is built with fresh ones: use model = "
        f"create_model('resnet18'), then load_weights(model, '{weights}')"
    )


def test_other_spellings_of_a_model_are_built():
    assert type(create_model("ResNet-18", 2)) is type(create_model("resnet18", 2))
    with pytest.raises(UserError, match="resnet_3 ?.*is not known"):
        create_model("resnet_3")


def test_a_configuration_whose_model_is_named_as_weights_says_that_they_are_not_loaded():
    run = load(["MODEL.NAME", "hf:timm/resnet18.a1_in1k"], DEFAULT_RECIPE)
    assert run.values.MODEL.NAME == "resnet18"
    assert any(notice.endswith("does not load its weights: -pretrained=NAME does") for notice in run.notices)


def test_an_unknown_model_that_resembles_none_names_the_list():
    refusal = refusal_of(find_name, "model", "efficientnet_b0")
    assert refusal.startswith("model 'efficientnet_b0' is not known: ") and "inspect --list' lists all" in refusal


@pytest.mark.parametrize(
    "flag, mend",
    [
        ("--lr=1", "TRAIN.BASE_LR"),
        ("--output-dir=x", "-output"),
        ("--img-size=3", "-image_size"),
        ("-j=3", "-num_work"),
    ],
)
def test_flags_of_other_tools_name_ours(flag, mend):
    assert "is not a known flag: write " + mend in refusal_of(load, [flag])


def test_hyphens_in_flags_are_underscores():
    assert load(["--batch-size=3", "--num-workers", "1"]).values.DATA.BATCH_SIZE == 3
