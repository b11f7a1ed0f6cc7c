"""Serialized networks as they start: each option alone, first weights, and the orders of a stage's blocks."""

import inspect
import math

import numpy as np
import paddle
import pytest

from paddlevit_dist import UserError
from paddlevit_dist.points.ptv3.attention import PatchAttention, RelativePosition
from paddlevit_dist.points.ptv3.blocks import ChannelScale, ConditionalNorm, SerializedLevel
from paddlevit_dist.points.ptv3.network import PointTransformer
from paddlevit_dist.points.ptv3.tables import PatchTable
from paddlevit_dist.points.sparse import SparseTensor
from paddlevit_dist.points.sparse.layers import Convolution, RowsBatchNorm

NARROW = {"strides": (2, 4), "encoder_depths": (1, 2, 1), "encoder_channels": (6, 12, 18), "encoder_heads": (1, 2, 3)}
NARROW |= {"decoder_depths": (3, 1), "decoder_channels": (6, 12), "decoder_heads": (1, 2), "patch_size": 8}


def build(**options):
    return PointTransformer(**{"num_classes": 5, "in_channels": 4, **NARROW, **options})


def blocks(model):
    return {name: layer for name, layer in model.named_sublayers() if name.rpartition(".")[2].startswith("block")}


def scene(size=60):
    cells = np.unique(np.random.default_rng(0).integers(0, 9, (size, 3)), axis=0)
    places = np.column_stack([np.zeros(len(cells), int), cells])
    return SparseTensor(np.random.default_rng(1).standard_normal((len(cells), 4)).astype(np.float32), places)


def tables(model, name):
    return {getattr(table, name) for level in model.tables for table in level}


def sizes(model, find):
    return {find(block) for block in blocks(model).values()}


def kinds(model, part):
    return {type(layer) for name, layer in model.named_sublayers() if name.endswith(part)}


OPTIONS = {  # option -> another value, what is looked at, and what that is then
    "num_classes": (3, lambda model: model.seg_head.weight.shape, [6, 3]),
    "in_channels": (7, lambda model: model.embedding.stem.conv.in_channels, 7),
    "family": ("sonata", lambda model: model.embedding.stem.linear.weight.shape, [4, 6]),
    "strides": ((2, 2), lambda model: [cells.strides for cells in model.cells], [(1, 2), (2, 4)]),
    "encoder_depths": ((1, 1, 3), lambda model: len([name for name in blocks(model) if "enc" in name]), 5),
    "encoder_channels": ((6, 12, 24), lambda model: model.enc.enc2.block0.attn.qkv.weight.shape, [24, 72]),
    "encoder_heads": ((1, 2, 9), lambda model: model.enc.enc2.block0.attn.head_dim, 2),
    "decoder_depths": ((1, 2), lambda model: len([name for name in blocks(model) if "dec1" in name]), 2),
    "decoder_channels": ((6, 24), lambda model: model.dec.dec1.block0.attn.qkv.weight.shape, [24, 72]),
    "decoder_heads": ((3, 2), lambda model: model.dec.dec0.block2.attn.head_dim, 2),
    "patch_size": ((4, 5, 6), lambda model: [level[0].patch_size for level in model.tables], [4, 5, 6]),
    "orders": (("hilbert",), lambda model: tables(model, "order"), {"hilbert"}),
    "shuffle_orders": (False, lambda model: model.draw_orders((1, 2)), [[0, 1, 2, 3]] * 3),
    "drop_path": (0.8, lambda model: model.enc.enc2.block0.drop_path.p, 0.8),
    "mlp_ratio": (2.5, lambda model: model.enc.enc1.block1.mlp[0].fc1.weight.shape, [12, 30]),
    "qkv_bias": (False, lambda model: sizes(model, lambda block: block.attn.qkv.bias), {None}),
    "pre_norm": (False, lambda model: sizes(model, lambda block: block.pre_norm), {False}),
    "layer_scale": (0.25, lambda model: kinds(model, ".ls1.0") | kinds(model, ".ls2.0"), {ChannelScale}),
    "enable_rpe": (True, lambda model: kinds(model, ".rpe"), {RelativePosition}),
    "conditions": (("a", "b"), lambda model: len(model.embedding.stem.norm.norm), 2),
    "condition": ("b", lambda model: model.embedding.stem.norm.chosen, 1),
    "mask_token": (True, lambda model: model.embedding.mask_token.shape, [1, 6]),
    "is_legacy": (True, lambda model: (model.is_legacy, tables(model, "is_legacy")), (True, {True})),
    "by_scene": (False, lambda model: tables(model, "by_scene"), {False}),
    "cut_to_smallest": (True, lambda model: tables(model, "cut_to_smallest"), {True}),
}
TOGETHER = {"conditions": {"condition": "a"}, "condition": {"conditions": ("a", "b")}}


@pytest.mark.parametrize("name", OPTIONS)
def test_each_option_alone_changes_the_network(name):
    assert set(OPTIONS) == set(inspect.signature(PointTransformer.__init__).parameters) - {"self"}
    value, look, expected = OPTIONS[name]
    with paddle.LazyGuard():
        model = build(**{name: value}, **TOGETHER.get(name, {}))
    model.train()
    assert look(model) == expected


STARTS = {
    "ptv3": {"enable_rpe": True, "layer_scale": 0.125},
    "sonata": {"family": "sonata", "mask_token": True, "conditions": ("a", "b"), "condition": "b"},
    "utonia": {"family": "utonia", "layer_scale": 1e-5},
}


@pytest.mark.parametrize("name", STARTS)
def test_first_weights(name):
    """Linear layers as Xavier, convolutions within 1 / sqrt(inputs), small tables, norms that change nothing."""
    paddle.seed(0)
    wide = {"encoder_channels": (30, 60, 90), "decoder_channels": (30, 60)}
    model = build(**{**wide, **STARTS[name]})
    seen, fields = set(), dict(model.named_sublayers(include_self=True))
    for key, parameter in model.named_parameters():
        owner, _, last = key.rpartition(".")
        layer, values = fields[owner], parameter.numpy().astype(np.float64)
        kind = f"{type(layer).__name__} {last}"
        seen.add(kind)
        if isinstance(layer, Convolution):
            bound = 1 / math.sqrt(layer.in_channels * layer.kernel_volume)
        elif kind == "Linear weight":
            bound = math.sqrt(6 / sum(values.shape))
        elif last in ("rpe_table", "mask_token"):
            assert 0.025 < abs(values).max() < 0.1 and 0.013 < values.std() < 0.027, key  # 0.02
            continue
        elif kind == "ChannelScale gamma":
            assert (values == np.float32(STARTS[name]["layer_scale"])).all()
            continue
        else:
            expected = {"weight": 1, "bias": 0, "_mean": 0, "_variance": 1}[last]
            assert (values == expected).all(), key
            continue
        assert abs(values).max() <= bound * 1.00001, key
        if values.size > 300:
            assert values.std() == pytest.approx(bound / math.sqrt(3), rel=0.1), key
    common = {"Linear weight", "Linear bias", "Convolution kernel", "Convolution bias", "LayerNorm weight"}
    own = {"ptv3": {"RelativePosition rpe_table", "ChannelScale gamma", "RowsBatchNorm _mean"}}
    own |= {"sonata": {"PointEmbedding mask_token"}, "utonia": {"ChannelScale gamma"}}
    assert common | own[name] <= seen


def test_norms_of_each_family():
    """Between levels, the published network has batch norms that forget a hundredth of their past in a step."""
    for family, kind in (("ptv3", RowsBatchNorm), ("sonata", paddle.nn.LayerNorm)):
        with paddle.LazyGuard():
            model = build(family=family)
        norms = [model.embedding.stem.norm, model.enc.enc1.down.norm[0]]
        norms += [model.dec.dec1.up.proj[1], model.dec.dec1.up.proj_skip[1]]
        assert all(isinstance(norm, kind) for norm in norms)
        inner = [part for block in blocks(model).values() for part in (block.cpe[2], block.norm1[0], block.norm2[0])]
        assert all(isinstance(norm, paddle.nn.LayerNorm) and norm._epsilon == 1e-5 for norm in inner)
    with paddle.LazyGuard():
        found = build().embedding.stem.norm
        named = build(conditions=("a", "b"), condition="a")
    assert (found._momentum, found._epsilon) == pytest.approx((0.99, 1e-3))
    own = [named.embedding.stem.norm, named.enc.enc1.down.norm[0], named.dec.dec0.up.proj[1]]
    own += [part for block in blocks(named).values() for part in (block.cpe[2], block.norm1[0], block.norm2[0])]
    assert all(isinstance(norm, ConditionalNorm) and len(norm.norm) == 2 and norm.chosen == 0 for norm in own)


@pytest.mark.parametrize("is_training", [False, True])
def test_blocks_of_a_stage_take_turns_among_the_orders(is_training, monkeypatch):
    """Also of a decoder's stage that has more blocks than the encoder's, and of one with more blocks than orders."""
    model = build(decoder_depths=(3, 1), encoder_depths=(1, 4, 1), orders=("z", "hilbert", "z-trans"))
    x, seen, given = scene(), {}, SerializedLevel.patches
    model.training = is_training
    drawn = model.draw_orders((3, 5))
    x.plan.seed = (3, 5)
    names = iter(["enc0", *["enc1"] * 4, "enc2", "dec1", *["dec0"] * 3])

    def note(level, block, rotary):
        patches = given(level, block, rotary)
        rows = {table.order: level.plan.table(table)[0].numpy() for table in model.tables[steps.index(level.stride)]}
        order = [name for name, each in rows.items() if np.array_equal(each, patches.rows.numpy())]
        seen.setdefault(next(names), []).append(order)
        return patches

    steps = [1, 2, 8]
    monkeypatch.setattr(SerializedLevel, "patches", note)
    model(x)
    for stage, orders in seen.items():
        turns = drawn[int(stage[3])]
        for number, possible in enumerate(orders):
            expected = model.tables[0][turns[number % 3]].order
            assert expected in possible, (stage, number)
    assert {len(possible) for possible in seen["dec0"]} == {1}
    assert (drawn == [[0, 1, 2]] * 3) != is_training


def test_attention_has_a_product_of_each_patch_and_no_other():
    """A change of a voxel changes the voxels of its patches alone."""
    paddle.seed(1)
    layer, table = PatchAttention(6, 2), PatchTable((1,), "z", 8)
    x = scene()
    level = SerializedLevel(x.plan, [table], has_grid=False)
    patches = level.patches(0, None)
    values = paddle.randn([len(x.features), 6])
    before = layer(values, patches).numpy()
    changed = values.clone()
    changed[5] = changed[5] + 3
    rows, starts = patches.rows.numpy(), patches.starts.numpy()
    together = {int(row) for first, end in zip(starts, starts[1:]) for row in rows[first:end] if 5 in rows[first:end]}
    differs = np.flatnonzero(np.abs(layer(changed, patches).numpy() - before).max(axis=1) > 1e-6).tolist()
    assert set(differs) <= together and len(differs) >= 8


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"family": "ptv4"}, "family is 'ptv4': expected ptv3, sonata or utonia"),
        ({"orders": ()}, r"orders is \[\]: expected some of z"),
        ({"strides": (2,)}, r"strides is \[2\]: expected 2 for 3 encoder_depths"),
        ({"strides": (3, 2)}, r"strides is \[3, 2\]: expected powers of 2"),
        ({"encoder_heads": (1, 2)}, "the encoder's depths, channels and heads are .*: expected 3 each"),
        ({"encoder_channels": (6, 12)}, "the encoder's depths, channels and heads are .*: expected 3 each"),
        ({"decoder_heads": (1,)}, "the decoder's depths, channels and heads are .*: expected 2 or no numbers each"),
        ({"decoder_channels": ()}, "the decoder's depths, channels and heads are .*: expected 2 or no numbers each"),
        ({"decoder_heads": (4, 2)}, "6 channels cannot be divided by 4 heads: change one"),
        ({"family": "utonia", "decoder_heads": (2, 2)}, "6 channels cannot be divided by 2 heads of a multiple of 6"),
        ({"conditions": ("a", "b")}, "condition is None: expected one of the conditions, a, b"),
    ],
)
def test_each_option_that_does_not_fit_is_told(options, told):
    with pytest.raises(UserError, match=told):
        build(**options)
