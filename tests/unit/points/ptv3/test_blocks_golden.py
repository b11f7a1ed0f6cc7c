"""Blocks, pooling and unpooling of Point Transformer V3 and Sonata, reproduced."""

import numpy as np
import paddle
import pytest
from support.networks import golden, serialized

from paddlevit_dist.core.checkpoint.load import load_weights
from paddlevit_dist.points.ptv3.blocks import (
    BlockOptions,
    CellPooling,
    CellUnpooling,
    SerializedBlock,
    SerializedLevel,
    batch_norm,
    mean_positions,
)
from paddlevit_dist.points.ptv3.serialization import find_depths, serialize
from paddlevit_dist.points.ptv3.tables import CellTable, PatchTable
from paddlevit_dist.points.ptv3.weights import from_pointcept

ABOUT, GOLDEN = serialized.ABOUT, golden.arrays("ptv3")
WITHIN = 1e-8


@pytest.fixture(autouse=True)
def in_double():
    before = paddle.get_default_dtype()
    paddle.set_default_dtype("float64")
    yield
    paddle.set_default_dtype(before)


def load(layer, state, prefix):
    whole = golden.weights(ABOUT["seed"], state)
    load_weights(layer, from_pointcept({key.removeprefix(prefix): value for key, value in whole.items()}), strict=True)
    layer.eval()
    return layer


@pytest.mark.parametrize("case", ABOUT["block"]["cases"])
def test_golden_blocks(case):
    about, entry = ABOUT["block"], ABOUT["block"]["cases"][case]
    is_fresh = entry["family"] != "ptv3"
    options = {key: value for key, value in entry["options"].items() if key != "enable_flash"}
    block = SerializedBlock(
        about["channels"],
        about["num_heads"],
        about["patch_size"],
        0.0,
        BlockOptions(**options, norm=paddle.nn.LayerNorm),
    )
    load(block, entry["state"], "block.")
    x, _ = serialized.inputs("block", about["sizes"], about["channels"])
    table = PatchTable((1,), about["orders"][entry["order_index"]], about["patch_size"], is_fresh, by_scene=False)
    level = SerializedLevel(x.plan, [table], block.attn.rpe is not None)
    with paddle.no_grad():
        position = block.cpe(x.features, level)
        inner = x.features + position
        attended = block.attn(block.norm1(inner) if block.pre_norm else inner, level.patches(0, None))
        found = {"cpe": position, "attn": attended, "out": block(x.features, x.features, level, 0)[0]}
    for name, values in found.items():
        for key, part in ((f"{name}_samples", serialized.samples), (name, lambda each, _: each)):
            if f"block/{case}/{key}" in GOLDEN:
                expected = GOLDEN[f"block/{case}/{key}"]
                np.testing.assert_allclose(part(values.numpy(), len(expected)), expected, rtol=0, atol=WITHIN)


@pytest.mark.parametrize("case", ABOUT["pools"])
def test_golden_pools(case):
    about = ABOUT["pools"][case]
    is_ptv3, stride = about["family"] == "ptv3", about["stride"]
    norm = (batch_norm if is_ptv3 else paddle.nn.LayerNorm) if about["norms"] else None
    fine, coarse = about["channels"]
    last = about["state"]["unpool.proj.0.bias"][0]
    down, up = CellPooling(fine, coarse, norm), CellUnpooling(coarse, fine, last, norm)
    for layer, prefix in ((down, "pool."), (up, "unpool.")):
        load(layer, {key: shape for key, shape in about["state"].items() if key.startswith(prefix)}, prefix)
    x, positions = serialized.inputs(f"pools/{case}", about["sizes"], fine)
    finest, table = serialized.voxels(f"pools/{case}", about["sizes"]), CellTable((1, stride))
    with paddle.no_grad():
        down.norm, down.act, (norm_layer, act) = paddle.nn.Sequential(), paddle.nn.Identity(), (down.norm, down.act)
        reduced = down(x.features, x.plan, table)
        down.norm, down.act = norm_layer, act
        pooled = down(x.features, x.plan, table)
        total, skipped = up(pooled, x.features, x.plan, table)
    cells = x.plan.coordinates(stride).astype(np.int64) // [1, stride, stride, stride]
    rows = np.arange(len(cells))
    if is_ptv3:
        rows = serialized.sort_rows(cells, finest, about["order"][0], stride.bit_length() - 1)
    golden_row = np.argsort(rows)

    def stored(name):
        return GOLDEN[f"pools/{case}/{name}"]

    assert np.array_equal(golden_row[x.plan.table(table)[0].numpy()], stored("cluster"))
    assert np.array_equal(cells[rows], np.column_stack([stored("down_batch"), stored("down_grid_coord")]))
    pairs = {"reduced": reduced.numpy()[rows], "up_feat": total.numpy()}
    pairs["down_coord"] = mean_positions(positions, x.plan, table).numpy()[rows]
    pairs["up_seen_by_next_convolution"] = (skipped if is_ptv3 else total).numpy()
    if about["norms"]:
        pairs["down_feat"] = pooled.numpy()[rows]
    for name, values in pairs.items():
        np.testing.assert_allclose(values, stored(name), rtol=0, atol=WITHIN, err_msg=name)
    depths = find_depths(cells, len(about["sizes"]), by_scene=False)
    if is_ptv3:
        depths = find_depths(finest, len(about["sizes"]), by_scene=False) - (stride.bit_length() - 1)
    assert (depths == about["down_depth"]).all()
    for number, order in enumerate(about["order"]):
        codes = serialize(cells[rows], depths, order)
        assert np.array_equal(codes, stored("down_code")[number])
        table_of_level = PatchTable((stride,), order, 8, not is_ptv3, by_scene=False)
        rows_of_patches, places, _ = (part.numpy() for part in x.plan.table(table_of_level))
        assert np.array_equal(golden_row[rows_of_patches[np.sort(places)]], stored("down_order")[number])
