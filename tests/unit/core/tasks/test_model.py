"""What models declare about themselves."""

import numpy as np
import pytest
from paddle import nn

from paddlevit_dist import UserError
from paddlevit_dist.core.checkpoint.load import load_weights
from paddlevit_dist.core.engine.optimizer import decay_groups
from paddlevit_dist.core.registry.names import REGISTRY
from paddlevit_dist.core.registry.register import register_model
from paddlevit_dist.core.tasks.model import Model, as_model, find_built_size
from paddlevit_dist.core.tasks.model_factory import create_model, model_options, variant_options


# Options that make the model small, and what stands in each of its layers. ViT's are BEiT's (get_num_layer_for_vit);
# CaiT's blocks of the class token share places with the last blocks of the patches as in timm's group_matcher.
def test_options_and_image_sizes_that_a_model_does_not_have_are_refused():
    with pytest.raises(UserError, match="model 'unet3d' has no option 'widht': did you mean 'width'"):
        create_model("unet3d", widht=4)
    with pytest.raises(UserError, match="'unet3d' works on volumes of any size and has no image size.*64"):
        create_model("unet3d", image_size=64)
    for name in ("linear_dinov2_small", "eomt_semantic_shapes"):
        with pytest.raises(UserError, match=f"'{name}': its backbone has its image size: remove image_size from"):
            create_model(name, backbone_options={"image_size": 32})
    with pytest.raises(UserError, match="'minkunet14a' works on points"):
        create_model("minkunet14a", image_size=64)


# Of users


class Plain(Model):
    """Named as in PVT's own code; all that a ``Model`` may say differently."""

    key_maps = {"mine": lambda state: {name.replace("theirs", "block1"): value for name, value in state.items()}}
    classifier_layers = ("head",)
    layer_names = r"block1\.\d+|blocks\.\d+"
    fixed_options = {"patch_size": 4}
    variants = {"of_a_user": {"width": 6}}

    def forward(self): ...

    def __init__(self, width: int = 4, num_classes: int = 3):
        super().__init__()
        self.patch_embed1 = nn.Linear(3, width)
        self.block1 = nn.LayerList([nn.Linear(width, width)])
        self.norm1 = nn.LayerNorm(width)
        self.blocks = nn.LayerList([nn.Linear(width, width) for _ in range(2)])
        self.head = nn.Linear(width, num_classes)
        self.token = self.create_parameter([1, width])

    def no_weight_decay(self):
        return {"token"}

    def resize_parameter(self, name, value):
        return value[:, : self.token.shape[1]] if name == "token" else None


@pytest.fixture
def registered():
    register_model("of_a_user", Plain)
    yield "of_a_user"
    del REGISTRY.models["of_a_user"]


@pytest.mark.parametrize(
    ("model", "theirs", "ours"),
    [
        ("vit_tiny_patch16_224", "img_size", "image_size"),
        ("vit_tiny_patch16_224", "drop_rate", "dropout"),
        ("vit_tiny_patch16_224", "drop_path_rate", "drop_path"),
        ("vit_tiny_patch16_224", "proj_drop_rate", ""),
        ("resnet18", "attn_drop_rate", ""),
        ("pvt_v2_b0", "sr_ratios", "reductions"),
    ],
)
def test_an_option_of_timms_is_answered_by_what_means_the_same(model, theirs, ours):
    with pytest.raises(UserError, match=f"has no option '{theirs}'") as refused:
        create_model(model, **{theirs: 1})
    hint = str(refused.value).partition(": ")[2].partition("valid options")[0]
    assert hint == (f"did you mean '{ours}'? " if ours else "")


def test_a_class_of_a_users_has_its_options_and_variants(registered):
    assert variant_options(registered) == {"width": 6}
    assert model_options(registered) == ({"width": 6}, {"width": 6}, {"patch_size": 4}, [])
    model = create_model(registered, num_classes=5)
    assert type(model) is Plain and model.head.weight.shape == [6, 5]
    assert create_model(registered, width=8).token.shape == [1, 8]


@pytest.mark.parametrize("size, known", [(64, (64, 64)), ((32, 48), (32, 48)), (None, None)])
def test_a_network_that_takes_no_image_size_works_on_any(registered, size, known):
    assert create_model(registered, image_size=size).image_size == known


def test_a_users_weights_are_renamed_resized_and_reset_as_its_model_says():
    model = Plain()
    state = {name: value.numpy() + 1.0 for name, value in Plain(num_classes=2).state_dict().items()}
    state["token"] = np.arange(8, dtype="float32").reshape(1, 8)
    state["theirs.0.weight"] = state.pop("block1.0.weight")
    state["theirs.0.bias"] = state.pop("block1.0.bias")
    report = load_weights(model, state, minimum_loaded=1.0)
    assert report.origin.startswith("mine names") and report.resized == ["token"]
    assert report.reinitialized == ["head.weight", "head.bias"]
    np.testing.assert_array_equal(model.token.numpy(), [[0.0, 1.0, 2.0, 3.0]])
    np.testing.assert_array_equal(model.block1[0].bias.numpy(), state["theirs.0.bias"], strict=True)


def test_a_backbone_resizes_its_own_numbers_for_each_place_and_tells_its_size():
    whole = Model()
    assert find_built_size(whole) is None and whole.resample_parameter("backbone.pos_embed", np.ones(1), None) is None
    options = {"patch_size": 8, "embed_dim": 4, "depth": 1, "num_heads": 1}
    whole.backbone = create_model("vit", image_size=(24, 16), **options)
    table = create_model("vit", image_size=(16, 24), **options).pos_embed.numpy()
    found = whole.resample_parameter("backbone.pos_embed", table, (16, 24))
    np.testing.assert_array_equal(found, whole.backbone.resample_parameter("pos_embed", table, (16, 24)))
    assert whole.resample_parameter("pos_embed", table, (16, 24)) is None
    assert find_built_size(whole) == (24, 16)
    whole.image_size = 40
    assert find_built_size(whole) == 40
    whole.image_size, whole.backbone = None, create_model("resnet18", depths=(1, 1, 1, 1))
    assert find_built_size(whole) is None  # without numbers for each place


def test_a_users_layers_are_those_that_its_model_names():
    model = Plain()
    assert [[name for name in group if not name.endswith("bias")] for group in model.layer_groups()] == [
        ["token", "patch_embed1.weight"],
        ["block1.0.weight", "norm1.weight"],
        ["blocks.0.weight"],
        ["blocks.1.weight"],
        ["head.weight"],
    ]
    assert model.recomputed_layers() == [*model.block1, *model.blocks]
    assert "token" in decay_groups(model, 0.1)[1]["names"]


def test_a_layer_of_another_class_has_the_defaults():
    plain, model = as_model(nn.Linear(2, 2)), Model()
    assert plain.recomputed_layers() == model.recomputed_layers() == []
    assert (plain.key_maps, plain.classifier_layers) == (model.key_maps, model.classifier_layers) == ({}, ())
    assert plain.no_weight_decay() == model.no_weight_decay() == ()
    assert plain.resize_parameter("weight", np.ones(1)) is model.resize_parameter("weight", np.ones(1)) is None
    assert plain.layer_groups() == [["weight", "bias"]]
    assert as_model(model) is model


def test_a_layer_that_declares_what_only_models_may_is_refused():
    class Own(nn.Linear):
        def no_weight_decay(self):
            return ("weight",)

    with pytest.raises(UserError, match="Own is not derived from Model: derive it"):
        as_model(Own(2, 2))


def test_a_class_of_a_users_is_built_with_its_variant_and_image_size():
    class Mine(Model):
        variants = {"mine": {"width": 2}}

        def forward(self): ...

        def __init__(self, num_classes: int = 1000, image_size: int = 8, width: int = 1):
            super().__init__()
            self.head = nn.Linear(image_size * width, num_classes)

    register_model("mine", Mine)
    try:
        assert create_model("mine", num_classes=3).head.weight.shape == [16, 3]
        assert create_model("mine", num_classes=3, image_size=4).head.weight.shape == [8, 3]
        assert model_options("mine").defaults == {"width": 2}
        with pytest.raises(UserError, match="model 'mine' has no option 'height'.*valid options: width"):
            create_model("mine", height=3)
    finally:
        del REGISTRY.models["mine"]
