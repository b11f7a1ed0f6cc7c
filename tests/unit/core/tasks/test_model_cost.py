"""Multiply-accumulates and activations, against closed forms and published figures, and the command that shows them."""

import paddle
import pytest
from paddle import nn
from support.networks.cheap_weights import weights_of_zero

from paddlevit_dist import UserError
from paddlevit_dist.core.commands.inspect_model import listing, report, run
from paddlevit_dist.core.registry.lookup import list_models
from paddlevit_dist.core.tasks.model_cost import compute_cost, count_parameters, list_layers
from paddlevit_dist.core.tasks.model_factory import create_model

PUBLISHED_G = {  # the tables of the ViT, DeiT and Swin papers, of timm and of torchvision
    "vit_tiny_patch16_224": 1.26,
    "swin_tiny_patch4_window7_224": 4.51,
    "convnext_tiny": 4.47,
    "resnet50": 4.09,
}


def cost(name, **options):
    model = create_model(name, **options)
    model.eval()
    return compute_cost(model, paddle.zeros([1, 3, *model.image_size]))


@pytest.mark.parametrize("name", PUBLISHED_G)
@weights_of_zero()
def test_multiply_accumulates_agree_with_the_published_ones(name):
    assert cost(name).multiply_accumulates / 1e9 == pytest.approx(PUBLISHED_G[name], rel=0.01)


def test_a_vits_multiply_accumulates_are_those_of_its_equations():
    depth, width, heads, tokens, classes = 3, 48, 4, 1 + 4 * 5, 7
    found = cost(
        "vit", depth=depth, embed_dim=width, num_heads=heads, patch_size=8, image_size=(32, 40), num_classes=classes
    )
    patches = (tokens - 1) * width * 3 * 8 * 8
    block = tokens * width * (3 * width + width + 2 * 4 * width) + 2 * tokens * tokens * width
    assert found.multiply_accumulates == patches + depth * block + width * classes
    assert found.parameters == sum(layer.parameters for layer in found.layers)


def test_each_convolutions_groups_count():
    model = paddle.nn.Sequential(
        paddle.nn.Conv2D(4, 6, 3, padding=1), paddle.nn.Conv2D(6, 6, 5, padding=2, groups=6), paddle.nn.Conv2D(6, 2, 1)
    )
    assert compute_cost(model, paddle.zeros([1, 4, 8, 8])).multiply_accumulates == 64 * (6 * 4 * 9 + 6 * 25 + 2 * 6)


class Product(nn.Layer):
    def count_products(self, one, other):
        return one.shape[-1]

    def forward(self, one, other):
        return one @ other


class Net(nn.Layer):
    """A layer of each kind, one that is frozen and one that is not called."""

    def __init__(self):
        super().__init__()
        self.line = nn.Conv1D(2, 3, 4)
        self.space = nn.Conv3D(1, 2, (1, 2, 3), bias_attr=False)
        self.frozen = nn.Linear(6, 5, bias_attr=False)
        self.frozen.weight.stop_gradient = True
        self.product = Product()
        self.unused = nn.Linear(2, 2)

    def forward(self, x):
        mapped = self.frozen(self.line(x))  # (1, 3, 5)
        self.product(mapped, mapped.transpose([0, 2, 1]))
        return self.space(mapped.reshape([1, 1, 1, 3, 5])), mapped


def test_each_layer_has_its_own_cost():
    model = Net()
    found = compute_cost(model, paddle.ones([1, 2, 9]))
    assert [tuple(vars(layer).values()) for layer in found.layers] == [
        ("", "Net", 0, 0, None),  # it returns no tensor
        ("line", "Conv1D", 27, 18 * 8, (1, 3, 6)),
        ("space", "Conv3D", 12, 12 * 6, (1, 2, 1, 2, 3)),
        ("frozen", "Linear", 0, 15 * 6, (1, 3, 5)),
        ("product", "Product", 0, 9 * 5, (1, 3, 3)),
        ("unused", "Linear", 6, 0, None),
    ]
    assert (found.parameters, found.multiply_accumulates) == (45, 144 + 72 + 90 + 45)
    assert [(layer.name, layer.parameters, layer.multiply_accumulates) for layer in list_layers(model)] == [
        (layer.name, layer.parameters, 0) for layer in found.layers
    ]
    assert count_parameters(model) == 45
    model(paddle.ones([1, 2, 9]))
    assert found.multiply_accumulates == sum(layer.multiply_accumulates for layer in found.layers)  # no hook is left


def test_activations_are_what_the_backward_pass_needs_once():
    layers = [paddle.nn.Linear(10, 300), paddle.nn.Sigmoid(), paddle.nn.Linear(300, 5)]
    found = compute_cost(paddle.nn.Sequential(*layers), paddle.zeros([20, 10]))
    # The input of the first product, and the sigmoid's output, which is also the input of the second.
    assert found.activation_bytes == 4 * 20 * (10 + 300)


def test_each_block_keeps_as_many_activations():
    kept = [cost("vit", depth=depth, embed_dim=48, num_heads=4, image_size=64).activation_bytes for depth in (2, 4, 6)]
    assert kept[2] - kept[1] == kept[1] - kept[0] > 0


@weights_of_zero()
def test_the_report_names_layers_sizes_and_sums():
    text = report("deit_tiny_distilled_patch16_224", image_size=(64, 32), num_classes=3)
    lines = text.splitlines()
    assert lines[0] == "deit_tiny_distilled_patch16_224: DistilledDeiT, images 3 x 64 x 32, 3 classes"
    (head,) = [line.split() for line in lines if line.startswith("head_dist ")]
    assert head == ["head_dist", "Linear", "1x3", str(192 * 3 + 3), str(192 * 3)]
    model = create_model("deit_tiny_distilled_patch16_224", image_size=(64, 32), num_classes=3)
    total = sum(int(parameter.size) for parameter in model.parameters())
    column = [int(line.split()[-2].replace(",", "")) for line in lines[2:-3]]
    assert sum(column) == total and f"parameters: {total:,} " in text


def test_the_listing_has_every_name():
    assert [line.split()[0] for line in listing().splitlines()] == list_models()


@pytest.mark.parametrize(
    "arguments, message",
    [
        ([], "name a model or add --list"),
        (["vit_tiny"], "model 'vit_tiny' is not known: did you mean"),
        (["vit", "-image_size=2x3x4"], "neither pixels such as 224 nor HEIGHTxWIDTH"),
        (["vit", "-image_size=100"], "does not divide into patches"),
        (["vit", "-num_classes=-1"], "not a whole number from 0 up"),
        (["--list", "nothing_like_it"], "no model's name contains 'nothing_like_it'"),
    ],
)
def test_bad_input_is_one_line(arguments, message):
    with pytest.raises(UserError, match=message) as caught:
        run(arguments)
    assert "\n" not in str(caught.value)
