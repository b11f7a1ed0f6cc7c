"""What DETRPose does with images and weights, beside the numbers of the golden file."""

import functools

import numpy as np
import paddle
import pytest
from support.networks.rtdetr_networks import make_images
from support.samples.pose_batches import CLASSES, NOISE, POINTS, make_pose_network, make_targets

from paddlevit_dist import UserError
from paddlevit_dist.core.tasks.model import ClassLayout
from paddlevit_dist.core.tasks.model_factory import create_model
from paddlevit_dist.images.detection.rtdetr.hybrid_network import flatten_maps

# Millions, from the authors' README (SebastianJanampa/DETRPose).
PUBLISHED = {"n": 4.1, "s": 11.5, "m": 20.8, "l": 32.8, "x": 73.3}
GRIDS = [(8, 12), (4, 6)]  # of the maps


@functools.cache
def network():
    return make_pose_network()


@pytest.mark.parametrize("size", PUBLISHED)
def test_the_number_of_parameters_is_the_published_one(size):
    with paddle.LazyGuard():  # names and shapes only
        built = create_model(f"detrpose_hgnetv2_{size}", num_classes=2)
    state = {key: value for key, value in built.state_dict().items() if not key.endswith(("_mean", "_variance"))}
    millions = sum(int(np.prod(value.shape)) for value in state.values()) / 1e6
    assert abs(millions - PUBLISHED[size]) < 0.015 * millions + 0.1


def test_an_image_gives_the_same_in_any_company():
    images = make_images(4)
    with paddle.no_grad():
        together, alone = network()(images), network()(images[2:3])
    assert together["poses"].shape == [4, network().num_queries, 2 * POINTS]
    assert np.ptp(together["poses"].numpy(), axis=1).min() > 1e-3
    for part in ("logits", "poses"):
        np.testing.assert_allclose(alone[part].numpy()[0], together[part].numpy()[2], rtol=0, atol=1e-10)


def test_denoising_queries_see_their_group_only_and_are_not_seen():
    images, targets = make_images(2), make_targets((2, 1), with_noise=True)
    places = targets.denoising.places.clone()
    places[:, :4] = 1 - places[:, :4]  # the first group of the first image, of two positive and two negative queries
    moved = targets._replace(denoising=targets.denoising._replace(places=places))
    with paddle.no_grad():
        plain, first, second = network()(images), *(network()(images, None, each) for each in (targets, moved))
    for part in ("logits", "poses"):
        np.testing.assert_allclose(first[part].numpy(), plain[part].numpy(), rtol=0, atol=1e-10)
    change = np.abs(second["denoising_layer_poses"].numpy() - first["denoising_layer_poses"].numpy())[:, 0].max((0, 2))
    assert (change[:4] > 1e-6).all() and change[4:].max() < 1e-10
    assert len(change) == 2 * NOISE.queries


def test_queries_start_at_the_best_cells_and_denoising_queries_at_their_labels_and_points():
    built, images, targets = network(), make_images(2), make_targets((3, 1), with_noise=True)
    places = np.array([[(x + 0.5) / w, (y + 0.5) / h] for h, w in GRIDS for y in range(h) for x in range(w)])
    with paddle.no_grad():
        outputs = built(images, None, targets)
        memory, grids = flatten_maps(built.encode_maps(images))
        assert grids == GRIDS and memory.shape[1] == len(places)
        is_inside = ((places > 0.01) & (places < 0.99)).all(1, keepdims=True)
        linear, norm = built.enc_output
        cells = memory.numpy() * is_inside @ linear.weight.numpy() + linear.bias.numpy()
        cells = (cells - cells.mean(-1, keepdims=True)) / np.sqrt(cells.var(-1, keepdims=True) + 1e-5)
        cells = paddle.to_tensor(cells * norm.weight.numpy() + norm.bias.numpy())
        logits, moves = built.enc_score_head(cells).numpy(), built.enc_pose_head(cells).numpy()
        best = np.argsort(-logits.max(-1), axis=1, kind="stable")[:, : built.num_queries, None]
        starts = np.tile(np.log(places / (1 - places)), POINTS) + moves
        starts = np.take_along_axis(1 / (1 + np.exp(-starts)), best, 1)
        np.testing.assert_allclose(outputs["encoder_poses"].numpy(), starts, atol=1e-6)  # centers are rounded
        np.testing.assert_allclose(outputs["encoder_logits"].numpy(), np.take_along_axis(logits, best, 1), atol=1e-9)
        noise, extra = targets.denoising, targets.denoising.labels.shape[1]
        rows = {name: parameter.numpy() for name, parameter in built.named_parameters() if parameter.ndim == 2}
        table = np.concatenate([rows["denoising_class_embed.weight"][:CLASSES], np.zeros((1, built.embed_dim))])
        tokens = np.zeros((2, extra + built.num_queries, 1 + POINTS, built.embed_dim))
        tokens[:, :extra, 0], tokens[:, :extra, 1:] = table[noise.labels.numpy()], rows["denoising_pose_embed.weight"]
        tokens[:, extra:, 0] = rows["instance_embedding.weight"]
        tokens[:, extra:, 1:] = rows["tgt_embed.weight"][:, None] + rows["keypoint_embedding.weight"]
        starts = np.concatenate([noise.places.numpy(), outputs["encoder_poses"].numpy()], 1)
        starts, mask = starts.reshape(2, -1, POINTS, 2), noise.blocked(built.num_queries).astype("float64")
        decoded = built.decoder(*map(paddle.to_tensor, (tokens, starts)), memory, grids, mask)
    assert noise.labels.max() == CLASSES  # unused queries
    for part in ("layer_logits", "layer_poses", "layer_corners"):
        both = [outputs[f"denoising_{part}"], outputs[part]]
        np.testing.assert_allclose(np.concatenate(both, 2), decoded[part].numpy(), atol=1e-10, err_msg=part)
        assert both[0].shape[2] == extra
    for part in ("logits", "poses"):
        np.testing.assert_array_equal(outputs[part].numpy(), outputs[f"layer_{part}"][-1].numpy())


def test_the_best_pairs_of_a_query_and_a_class_have_the_pose_of_their_query():
    random, queries = np.random.default_rng(3), 5
    logits, poses = random.normal(size=(2, queries, CLASSES)), random.random((2, queries, 2 * POINTS))
    top, chosen = network().best({"logits": paddle.to_tensor(logits), "poses": paddle.to_tensor(poses)}), []
    for image in range(2):
        pairs = sorted(np.ndindex(queries, CLASSES), key=lambda pair: -logits[image][pair])[:queries]
        rows, labels = map(list, zip(*pairs))
        assert top.labels[image].tolist() == labels
        np.testing.assert_allclose(top.poses[image].numpy(), poses[image, rows].reshape(queries, POINTS, 2), rtol=1e-6)
        np.testing.assert_allclose(top.scores[image].numpy(), 1 / (1 + np.exp(-logits[image, rows, labels])), rtol=1e-6)
        chosen.append(rows)
    assert any(len(set(rows)) < queries for rows in chosen) and chosen[0] != chosen[1]


def test_the_authors_person_is_taken_for_one_class():
    rows = np.arange(6.0).reshape(3, 2)
    built = network()
    labels = np.repeat(np.arange(81.0)[:, None], 3, axis=1)
    assert built.resize_parameter("enc_score_head.weight", rows) is None  # it has two classes
    assert built.list_resize_notices(["other.weight"]) == []
    (notice,) = built.list_resize_notices(["enc_score_head.weight", "other.weight"])
    assert notice.endswith("for the ids 0 and 1 of COCO's categories, the output of the person was used")
    np.testing.assert_array_equal(built.resize_parameter("denoising_class_embed.weight", labels)[:, 0], [0, 1, 80])
    built.num_classes = 1
    try:
        np.testing.assert_array_equal(built.resize_parameter("decoder.class_embed.0.weight", rows), rows[:, 1:])
        np.testing.assert_array_equal(built.resize_parameter("denoising_class_embed.weight", labels)[:, 0], [1, 80])
        assert built.resize_parameter("decoder.class_embed.0.weight", rows.T) is None  # three outputs
        assert built.resize_parameter("decoder.pose_embed.0.weight", rows) is None  # not a classifier's
        assert built.outputs_to_classes(2) == 1 and built.outputs_to_classes(5) == 5
    finally:
        built.num_classes = CLASSES
    assert built.resize_parameter("denoising_class_embed.weight", labels[:7]) is None  # not the authors'
    assert built.class_layout("denoising_class_embed.weight") == ClassLayout(after=1, axis=0)  # a row for no object


def test_images_that_do_not_fit_are_refused():
    with pytest.raises(UserError, match="DETRPose takes images whose sides are multiples of"):
        network()(paddle.zeros([1, 3, 60, 96]))
    with pytest.raises(UserError, match="MODEL.NUM_QUERIES"):
        network()(paddle.zeros([1, 3, 16, 32], "float64"))
    with pytest.raises(UserError, match=r"points \[1\]"):
        create_model("detrpose_small", num_classes=1, points=(1,))
