"""Maps of transformers' HGNetV2, the backbone of its D-FINE, reproduced from weights under its names."""

import numpy as np
import paddle
import pytest
from support import golden

from paddlevit_dist.checkpoint.load import load_weights
from paddlevit_dist.models import create_model

GOLDEN = golden.description("rtdetr")
ENTRIES = [
    name
    for name, about in GOLDEN["models"].items()
    if about["config"]["backbone_config"]["model_type"] != "rt_detr_resnet"
]
PREFIX = "model.backbone.model."
EXACT = 1e-10  # in float64
ALLOWED = 10  # times the error of torch's own float32 run


def shapes_of(nested, prefix=""):
    """(name, shape) of a state whose names are nested at their dots."""
    if isinstance(nested, list):
        yield prefix[:-1], nested
        return
    for name, inner in nested.items():
        yield from shapes_of(inner, f"{prefix}{name}.")


def state_of(about):
    """The backbone's weights, as ``fields`` of the golden file says."""
    shapes = dict(shapes_of(about["state"]))
    state = golden.weights(GOLDEN["seed"], {key: shape for key, shape in shapes.items() if key.startswith(PREFIX)})
    for key in state:
        gains = (gain for ending, gain in about["gain"].items() if key.endswith(ending))
        state[key] = state[key] * np.float32(next(gains, 1)) + np.float32(key.endswith("lab.scale"))
    return state


def model_of(config, dtype, **options):
    own = config["backbone_config"]
    model = create_model(
        "hgnetv2_b0",
        num_classes=0,
        stem_dims=own["stem_channels"][1:],
        depths=own["stage_num_blocks"],
        dims=own["stage_out_channels"],
        middle_dims=own["stage_mid_channels"],
        kernel_sizes=own["stage_kernel_size"],
        light=own["stage_light_block"],
        layers=own["stage_numb_of_layers"][0],
        use_lab=own["use_learnable_affine_block"],
        **options,
    )
    return model.to(dtype=dtype)


def images_of(batch, dtype):
    """See ``batches`` of the golden file's ``fields``."""
    drawn = []
    for number, height, width in batch["pictures"]:
        random = golden.recipe()._rng(GOLDEN["seed"], f"image{number}")
        coarse = random.standard_normal((3, -(-height // 16), -(-width // 16))).astype(np.float32)
        fine = random.standard_normal((3, height, width)).astype(np.float32)
        cells = (2 * coarse).repeat(16, 1).repeat(16, 2)[:, :height, :width]
        drawn.append(cells + np.float32(0.5) * fine)
    return paddle.to_tensor(np.stack(drawn).astype(dtype))


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("entry", ENTRIES)
def test_golden_maps(entry, dtype, frozen):
    about = GOLDEN["models"][entry]
    model = model_of(about["config"], dtype, frozen_batch_norm=frozen)
    report = load_weights(model, state_of(about), strict=True)
    assert report.unexpected == []
    model.train() if frozen else model.eval()  # fixed norms compute the same in training
    for number, batch in enumerate(about["batches"]):
        with paddle.no_grad():
            maps = model.features(images_of(batch, dtype))
        assert [one.shape[1] for one in maps] == list(model.feature_channels)
        errors, shapes = batch["float32_error"]["features"], batch["feature_shapes"]
        for place, (found, shape, error) in enumerate(zip(maps[-len(shapes) :], shapes, errors)):
            found = found.numpy().ravel()
            samples = found[np.arange(64) * (found.size - 1) // 63]
            expected = golden.arrays("rtdetr")[f"{entry}/batch{number}/features{place}"]
            assert list(maps[place - len(shapes)].shape) == shape
            assert np.abs(samples - expected).max() <= (EXACT if dtype == "float64" else ALLOWED * error)
