"""Masked autoencoders against transformers' ViTMAEForPreTraining: masks, outputs, losses, gradients; and neighbors.

Sizes, names and numbers are those of the golden file. The largest networks take seconds and are of the night.
"""

import numpy as np
import paddle
import paddle.nn.functional as F
import pytest
from support.networks import golden

from paddlevit_dist.core.checkpoint.load import load_weights
from paddlevit_dist.images.classification.probes import find_nearest, weigh_votes
from paddlevit_dist.images.models.vit import VisionTransformer
from paddlevit_dist.images.pretraining.masked_autoencoder import masks
from paddlevit_dist.images.pretraining.masked_autoencoder.losses import normalize_patches, reconstruction_losses
from paddlevit_dist.images.pretraining.masked_autoencoder.network import MaskedAutoencoder

GOLDEN, ARRAYS = golden.description("mae"), golden.arrays("mae")
LARGE = 3_000_000  # parameters
BOUNDS = {"float64": (1e-9, 1e-9, 1e-9), "float32": (1e-4, 1e-5, 1e-4)}  # outputs; losses, gradients: relative
FIXED = ("position_embeddings", "decoder_pos_embed")
NETWORKS = {name: about for name, about in GOLDEN["models"].items() if "config" in about}
SMALL = [name for name, about in NETWORKS.items() if about["parameters"] <= LARGE]
NEIGHBORS = [(name, k) for name, about in GOLDEN["models"].items() for k in about if k.startswith("k=")]


def samples(x, count):
    places = np.arange(count, dtype=np.int64) * 2654435761 % x.size
    return np.asarray(x).ravel()[places]


class Case:
    """A network with the file's weights, its images and masks."""

    def __init__(self, name, dtype):
        about, config = NETWORKS[name], NETWORKS[name]["config"]
        self.about, self.name, self.side = about, name, config["patch_size"]
        before = paddle.get_default_dtype()
        paddle.set_default_dtype(dtype)
        try:
            encoder = VisionTransformer(
                num_classes=0,
                image_size=config["image_size"],
                patch_size=config["patch_size"],
                embed_dim=config["hidden_size"],
                depth=config["num_hidden_layers"],
                num_heads=config["num_attention_heads"],
                mlp_ratio=(config["intermediate_size"] + 0.5) / config["hidden_size"],  # rounded down
                in_channels=config.get("num_channels", 3),
                qkv_bias=config.get("qkv_bias", True),
                norm_epsilon=config["layer_norm_eps"],
            )
            self.model = MaskedAutoencoder(
                encoder,
                config["mask_ratio"],
                config["decoder_hidden_size"],
                config["decoder_num_hidden_layers"],
                config["decoder_num_attention_heads"],
                config["layer_norm_eps"],
                config["decoder_intermediate_size"] / config["decoder_hidden_size"],
            )
        finally:
            paddle.set_default_dtype(before)
        state = golden.weights(GOLDEN["seed"], {n: s for n, s in about["state"].items() if not n.endswith(FIXED)})
        self.report = load_weights(self.model, state, minimum_loaded=0.0)
        size = config["image_size"]
        places = np.arange(size) / size
        images = golden.recipe().golden_image(GOLDEN["seed"], 2, size).astype(np.float64)
        images = images * (0.5 + places[:, None]) + 2 * places
        self.images = paddle.to_tensor(images.astype(dtype))
        order = masks.sort_noise(ARRAYS[f"{name}/noise"])
        self.order, self.restore = (paddle.to_tensor(each) for each in (order, masks.sort_noise(order)))
        self.target = masks.cut_patches(self.images, self.side)

    def array(self, kind):
        return ARRAYS[f"{self.name}/{kind}"]

    def loss(self, normalizes):
        prediction = self.model(self.images, self.order, self.restore)
        target = normalize_patches(self.target) if normalizes else self.target
        return reconstruction_losses(prediction, target, self.restore, self.model.kept).mean()

    def gradient_norm(self, name):
        """Norm of the gradient of a parameter by transformers' name, of its part if ours joins several."""
        shapes = {key: tuple(shape) for key, shape in self.about["state"].items() if not key.endswith(FIXED)}
        marked = {key: np.full(shape, key == name, np.float32) for key, shape in shapes.items()}
        renamed = self.model.key_maps["Hugging Face"](marked)
        [(own, mark)] = [(key, value) for key, value in renamed.items() if value.any()]
        gradient = dict(self.model.named_parameters())[own].grad.numpy()
        is_linear = mark.ndim == 2  # (out, in) there, (in, out) here
        return float(np.sqrt(((gradient * (mark.T if is_linear else mark)) ** 2).sum()))


def require_outputs_and_gradients(name, dtype):
    bounds = BOUNDS[dtype]
    case = Case(name, dtype)
    about, model = case.about, case.model
    report = case.report
    assert (report.missing, report.unexpected, report.resized, report.reinitialized) == (["pos_embed"], [], [], [])
    assert (model.num_patches, model.kept) == (about["patches"], about["kept"])
    np.testing.assert_array_equal((case.restore.numpy() >= model.kept), case.array("mask"))
    np.testing.assert_array_equal(case.restore.numpy(), case.array("ids_restore"))
    size = (2, *about["reconstruction"]["shape"][1:])
    with paddle.no_grad():
        found = {
            "reconstruction": model(case.images, case.order, case.restore),
            "latent": model.encode(case.images, case.order),
            "features_unmasked": model.encoder.tokens(case.images),
            "target": case.target,
            "target_normalised": normalize_patches(case.target),
        }
        channels = case.images.shape[1]
        found["picture"] = masks.join_patches(found["reconstruction"], model.grid, case.side, channels)
        back = masks.join_patches(case.target, model.grid, case.side, channels)
    np.testing.assert_array_equal(back.numpy(), case.images.numpy())
    assert tuple(found["reconstruction"].shape) == size
    for kind, value in found.items():
        expected = case.array(f"{kind}_samples")
        np.testing.assert_allclose(samples(value.numpy(), len(expected)), expected, atol=bounds[0], err_msg=kind)
    for kind, normalizes in (("plain_loss", False), ("norm_pix_loss", True)):
        loss = case.loss(normalizes)
        np.testing.assert_allclose(float(loss), about[kind]["loss"], rtol=bounds[1])
        model.clear_gradients()
        loss.backward()
        norms = about[kind]["gradient_norms"]
        nothing = 1e-3 * bounds[2] * max(norms.values())  # the gradient of a key's bias is 0 but for rounding
        for parameter, norm in norms.items():
            found_norm = case.gradient_norm(parameter)
            np.testing.assert_allclose(found_norm, norm, rtol=bounds[2], atol=nothing, err_msg=parameter)


@pytest.mark.parametrize("name", SMALL)
def test_golden_networks_in_float64(name):
    require_outputs_and_gradients(name, "float64")


@pytest.mark.parametrize("name", SMALL)
def test_golden_networks_in_float32(name):
    require_outputs_and_gradients(name, "float32")


@pytest.mark.parametrize("name", NETWORKS)
def test_golden_tables_of_positions(name):
    config = NETWORKS[name]["config"]
    side = config["image_size"] // config["patch_size"]
    for kind, width in (("position_embeddings", "hidden_size"), ("decoder_pos_embed", "decoder_hidden_size")):
        table, expected = masks.sine_cosine_table(config[width], side, side, 1), ARRAYS[f"{name}/{kind}"]
        if expected.ndim == 1:
            table = samples(table, len(expected))
        np.testing.assert_allclose(table.reshape(expected.shape), expected, atol=1e-6)


@pytest.mark.parametrize(("name", "case"), NEIGHBORS)
def test_golden_neighbors(name, case):
    number, stored = int(case[2:]), GOLDEN["models"][name]
    train, test = (paddle.to_tensor(ARRAYS[f"{name}/{part}_features"]) for part in ("train", "test"))
    labels = paddle.to_tensor(ARRAYS[f"{name}/train_labels"])
    similarity, places = find_nearest(F.normalize(test, axis=-1), F.normalize(train, axis=-1), number)
    np.testing.assert_array_equal(places.numpy(), ARRAYS[f"{name}/neighbours"][:, :number])
    votes = weigh_votes(similarity, labels[places], stored["classes"], stored[case]["temperature"])
    votes = votes.sum(axis=1).numpy()
    expected = ARRAYS[f"{name}/k{number}_votes"]
    largest = votes.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(votes / largest, expected / expected.sum(axis=1, keepdims=True), atol=1e-5)
    ranks = np.argsort(-votes, axis=1, kind="stable")
    truth = ARRAYS[f"{name}/test_labels"][:, None]
    np.testing.assert_array_equal(ranks[:, 0], ARRAYS[f"{name}/k{number}_prediction"])
    assert int((ranks[:, :1] == truth).sum()) == stored[case]["correct_top1"]
    assert int((ranks[:, :5] == truth).any(axis=1).sum()) == stored[case]["correct_top5"]
