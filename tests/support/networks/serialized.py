"""The networks of the golden file ``ptv3``: built by its configurations, with its weights and inputs."""

import numpy as np
import paddle

from paddlevit_dist.core.checkpoint.load import load_weights
from paddlevit_dist.points.ptv3.network import PointTransformer
from paddlevit_dist.points.ptv3.serialization import find_depths, serialize
from paddlevit_dist.points.sparse import SparseTensor

from . import golden

ABOUT = golden.description("ptv3")
CONDITIONS = ("ScanNet", "S3DIS", "Structured3D")
_SAME = ("in_channels", "mlp_ratio", "qkv_bias", "pre_norm", "layer_scale", "enable_rpe", "mask_token", "drop_path")
_NAMES = {"stride": "strides", "order": "orders", "shuffle_orders": "shuffle_orders"}
_NAMES |= {f"{part[:3]}_{name}": f"{part}_{name}" for part in ("encoder", "decoder") for name in ("depths", "channels")}
_NAMES |= {f"{part[:3]}_num_head": f"{part}_heads" for part in ("encoder", "decoder")}


def options(entry: dict) -> dict:
    """Options of our network for an entry of the file."""
    config, family = entry["config"], entry["family"]
    found = {key: config[key] for key in _SAME if key in config}
    found |= {ours: config[theirs] for theirs, ours in _NAMES.items() if theirs in config}
    if config.get("enc_mode"):
        found |= {"decoder_depths": (), "decoder_channels": (), "decoder_heads": ()}
    found["patch_size"] = tuple(config["enc_patch_size"])
    assert list(found["patch_size"])[: len(config.get("dec_patch_size", ()))] == config.get("dec_patch_size", [])
    if "condition" in entry:
        found |= {"conditions": CONDITIONS, "condition": entry["condition"]}
    found |= {"is_legacy": family.endswith("1.5.1"), "family": family.partition("_")[0]}
    # Without flash attention, and with relative positions, the authors cut patches to the smallest scene.
    return {**found, "by_scene": False, "cut_to_smallest": not config["enable_flash"]}


def list_turns(entry: dict) -> list[list[int]]:
    """The orders by which blocks take turns on each level, as numbers: shuffled on the finest, then again on each."""
    turns = list(range(len(entry["config"]["order"])))
    found = []
    for level in range(len(entry["config"]["enc_depths"])):
        turns = [turns[place] for place in entry["perms"][level]] if "perms" in entry else turns
        found.append(turns)
    return found


def build(name: str) -> PointTransformer:
    """The network of this name with its weights, in Paddle's default dtype."""
    entry, arrays = ABOUT["networks"][name], golden.arrays("ptv3")
    model = PointTransformer(num_classes=entry["num_classes"], **options(entry))
    state = golden.weights(ABOUT["seed"], entry["state"])
    state |= {key: arrays[f"{name}/inv_freq"] for key in state if key.endswith("inv_freq")}
    load_weights(model, state, strict=True)
    if "perms" in entry:
        model.draw_orders = lambda seed: list_turns(entry)
    return model


def voxels(case: str, sizes: list[int]) -> np.ndarray:
    """Voxels of a case, int64 (N, 4)."""
    cells = golden.arrays("ptv3")[f"{case}/grid_coord"].astype(np.int64)
    return np.column_stack([np.repeat(np.arange(len(sizes)), sizes), cells])


def draw(kind: str, case: str) -> np.random.Generator:
    """The generator of an input."""
    return golden.recipe()._rng(ABOUT["seed"], f"{kind}:{case}")


def inputs(case: str, sizes: list[int], channels: int) -> tuple[SparseTensor, paddle.Tensor]:
    """Features on voxels, and positions (N, 3), in Paddle's default dtype."""
    places, dtype = voxels(case, sizes), paddle.get_default_dtype()
    features = draw("feat", case).standard_normal((len(places), channels)).astype(np.float32)
    positions = ((places[:, 1:] + draw("coord", case).random((len(places), 3))) * 0.02).astype(np.float32)
    return SparseTensor(features.astype(dtype), places), paddle.to_tensor(positions.astype(dtype))


def samples(values: np.ndarray, number: int) -> np.ndarray:
    """The stored samples of an array."""
    return values.ravel()[(np.arange(number, dtype=np.int64) * 2654435761) % values.size]


def sort_rows(cells: np.ndarray, finest: np.ndarray, order: str, steps: int, is_legacy: bool = False) -> np.ndarray:
    """The rows of a coarse level, int64 (M, 4) cells, in the order of Pointcept: along the curve of the level before.

    ``steps`` is the number of halvings since the ``finest`` voxels.
    """
    depths = find_depths(finest, int(finest[:, 0].max()) + 1, is_legacy, by_scene=False)
    return np.argsort(serialize(cells, depths - steps, order), kind="stable")
