"""The parts of ``inspect``: names that are listed, the task of a model, keys that change layers, and the table."""

import paddle
import pytest
from support.registrations import forgotten

from paddlevit_dist import Manifest, UserError, register_feature
from paddlevit_dist.core.commands import inspect_model
from paddlevit_dist.core.registry import lookup
from paddlevit_dist.core.registry.names import REGISTRY
from paddlevit_dist.core.registry.register import register_model
from paddlevit_dist.core.tasks.model import Model
from paddlevit_dist.core.tasks.model_cost import LayerCost


@pytest.fixture(autouse=True)
def own_names():
    with forgotten():
        yield


class Mine(Model):
    """A model of a user."""

    def forward(self): ...


def test_options_have_their_defaults():
    options = inspect_model.parse_words(["vit"])
    expected = {"name": "vit", "list": False, "image_size": None, "num_classes": 1000, "depth": 2, "settings": []}
    assert {name: getattr(options, name) for name in expected} == expected
    options = inspect_model.parse_words(["-list", "-image_size=32x48", "-num_classes=0", "-depth=0"])
    assert (options.name, options.list, options.image_size, options.num_classes) == (None, True, (32, 48), 0)
    with pytest.raises(UserError, match="^inspect: name a model or add --list; "):
        inspect_model.run([])


def test_names_are_listed_with_module_and_weights_with_license():
    register_model("vit_of_mine", Mine)
    rows = {line.split()[0]: line for line in inspect_model.listing("vit_").splitlines()}
    assert list(rows) == [name for name in lookup.list_models() if "vit_" in name]
    place = REGISTRY.models["vit_base_patch16_224"].split(":")[0]
    row = rows["vit_base_patch16_224"]
    assert row.split()[1] == place and "(" in row and row.endswith(")")
    assert rows["vit_of_mine"].split() == ["vit_of_mine", __name__]
    assert len({row.index(row.split()[1]) for row in rows.values()}) == 1  # in one column
    alias, named = next(iter(REGISTRY.aliases.items()))
    assert f"  = {named}" in next(
        line for line in inspect_model.listing(alias).splitlines() if line.split()[0] == alias
    )
    with pytest.raises(UserError, match="^inspect --list: no model's name contains 'nothing_like_it'$"):
        inspect_model.listing("nothing_like_it")


def list_names(source):
    """List the models of another package, whose module this is."""
    return [f"{source}:{name}" for name in ("res_a", "res_b", "nets")]


def test_names_of_another_package_are_listed_as_they_are():
    register_feature(Manifest("acme", sources={"acme": __name__}))
    assert inspect_model.listing("acme:res") == "acme:res_a\nacme:res_b"
    assert inspect_model.listing("acme:*s") == "acme:nets"


@pytest.mark.parametrize(
    ("key", "changes"),
    [
        ("MODEL.DEPTH", True),
        ("MODEL.NUM_CLASSES", True),  # of all runs, but of the model
        ("TASK", True),
        ("DATA.IMAGE_SIZE", True),
        ("DATA.IMAGE_CHANNELS", True),
        ("DATA.CROP_PCT", False),
        ("DATA.BATCH_SIZE", False),
        ("TRAIN.SMOOTHING", False),
        ("SEED", False),
        ("VOLUMES.UNET_WIDTH", True),
        ("VOLUMES.NOISE", False),  # training alone reads it
    ],
)
def test_keys_of_layers_are_known(key, changes):
    assert inspect_model.changes_layers(key) is changes


def test_a_model_belongs_to_the_first_task_that_trains_it():
    register_model("mine", Mine)
    expected = {"detr_resnet50": "detection", "segformer_b0": "image_segmentation", "unet3d": "landmarks"}
    expected |= {"minkunet34c": "semantic_segmentation", "mine": "classification", "resnet18": "classification"}
    assert {name: inspect_model.find_task(name) for name in expected} == expected


class Auxiliary(Model):
    """A network with a second classifier in training."""

    def __init__(self, num_classes=10, image_size=4, in_channels=2) -> None:
        super().__init__()
        self.in_channels, self.image_size = in_channels, (image_size, image_size + 1)
        self.head = paddle.nn.Linear(in_channels * image_size * (image_size + 1), num_classes)
        self.second = paddle.nn.Linear(num_classes, 7)

    def forward(self, x):
        y = self.head(x.flatten(1))
        return self.second(y) if self.training else y


class Unsized(Model):
    """A network on other data than images."""

    def forward(self, x):
        return self.head(x)

    def __init__(self, num_classes=10) -> None:
        super().__init__()
        self.head = paddle.nn.Linear(250_000, num_classes)


def report_of(name, target, *arguments, **options) -> list[list[str]]:
    register_model(name, target)
    return [line.split() for line in inspect_model.report(name, *arguments, **options).splitlines()]


def test_a_model_is_reported_as_it_is_evaluated():
    title, header, first, second, *totals = report_of("auxiliary", Auxiliary, num_classes=3)
    assert title == "auxiliary: Auxiliary, images 2 x 4 x 5, 3 classes".split()
    assert (first, second) == (["head", "Linear", "1x3", "123", "120"], ["second", "Linear", "28", "0"])
    assert totals[0] == "parameters: 151 (0.0 MB as float32)".split() and totals[1][1:3] == ["0.00", "G"]
    assert len(totals) == 3 and totals[2][0] == "activations"
    title, *_ = inspect_model.report("auxiliary", 6, 5).splitlines()
    assert title == "auxiliary: Auxiliary, images 2 x 6 x 7, 5 classes"


def test_layers_of_a_network_on_other_data_are_listed():
    title, _, row, *totals = report_of("unsized", Unsized, num_classes=4, depth=1)
    assert title == "unsized: Unsized, 4 classes".split()
    assert row == ["head", "Linear", "1,000,004", "0"]
    assert totals == [
        "parameters: 1,000,004 (4.0 MB as float32)".split(),
        "multiply-accumulates and activations are counted for image models only".split(),
    ]


LAYERS = [
    LayerCost("", "Net", 3, 0, (9,)),
    LayerCost("a", "Block", 0, 0, (4, 5)),
    LayerCost("a.b", "Linear", 1200, 50, (5,)),
    LayerCost("a.b.c", "Norm", 7, 2000, None),
    LayerCost("d", "ReLU", 0, 0, (1,)),
    LayerCost("e", "Head", 0, 6, None),
]


@pytest.mark.parametrize(
    ("depth", "rows"),
    [
        (0, [("(model)", "Net", "9", "1,210", "2,056")]),
        (1, [("(model)", "Net", "9", "3", "0"), ("a", "Block", "4x5", "1,207", "2,050"), ("e", "Head", "", "0", "6")]),
        (
            2,
            [
                ("(model)", "Net", "9", "3", "0"),
                ("a.b", "Linear", "5", "1,207", "2,050"),
                ("e", "Head", "", "0", "6"),
            ],
        ),
    ],
)
def test_deeper_layers_are_added_to_their_parents(depth, rows):
    header = ("layer", "", "output", "parameters", "multiply-accumulates")
    widths = [max(len(row[column]) for row in [header, *rows]) for column in range(5)]
    lines = inspect_model.format_table(LAYERS, depth)
    assert len({len(line) for line in lines}) == 1 and len(lines[0]) == sum(widths) + 8
    starts = [sum(widths[:column]) + 2 * column for column in range(5)]
    cells = [[line[start : start + width] for start, width in zip(starts, widths)] for line in lines]
    assert [tuple(cell.strip() for cell in row) for row in cells] == [header, *rows]
    assert all(row[0][0] != " " and row[3][-1] != " " and row[4][-1] != " " for row in cells)


def test_megabytes_are_millions():
    assert inspect_model.format_megabytes(1_234_567_890) == "1,234.6 MB"
