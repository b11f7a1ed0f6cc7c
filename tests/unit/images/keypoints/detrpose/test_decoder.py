"""DETRPose's decoder in float64 against the formulas written out in NumPy, token by token."""

import numpy as np
import paddle
from support.networks.small_detr import default_dtype

from paddlevit_dist.images.detection.rtdetr.distributions import DistanceBins
from paddlevit_dist.images.keypoints.detrpose.decoder import PoseDecoder, PoseDecoderConfig

DIM, HEADS, POINTS, SAMPLED, BATCH, QUERIES = 12, 2, 3, (2, 1), 2, 4
SIZES, BINS = [(3, 5), (2, 3)], DistanceBins(6, 0.5, 4.0)


def make_decoder():
    """A decoder of two layers, every parameter of which is drawn."""
    with default_dtype("float64"):
        decoder = PoseDecoder(PoseDecoderConfig(DIM, HEADS, 12, 2, SAMPLED, POINTS), BINS)
    random = np.random.default_rng(0)
    for parameter in decoder.parameters():
        parameter.set_value(random.standard_normal(parameter.shape) / np.sqrt(parameter.shape[0]))
    return decoder


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def softmax(x):
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def dense(layer, x):
    return x @ layer.weight.numpy() + layer.bias.numpy()


def norm(layer, x):
    centered = x - x.mean(-1, keepdims=True)
    scale = np.sqrt((centered**2).mean(-1, keepdims=True) + 1e-5)
    return centered / scale * layer.weight.numpy() + layer.bias.numpy()


def mlp(layers, x):
    for layer in layers[:-1]:
        x = np.maximum(dense(layer, x), 0)
    return dense(layers[-1], x)


def attend(layer, x, blocked=None):
    """Tokens (n, dim) that attend to each other, unless a row is blocked for a column."""
    parts = []
    for head in range(HEADS):
        own = slice(head * DIM // HEADS, (head + 1) * DIM // HEADS)
        q, k, v = (dense(part, x)[:, own] for part in (layer.q_proj, layer.k_proj, layer.v_proj))
        products = q @ k.T / np.sqrt(DIM / HEADS)
        parts.append(softmax(products if blocked is None else np.where(blocked > 0, -np.inf, products)) @ v)
    return dense(layer.o_proj, np.concatenate(parts, -1))


def sample(values, x, y):
    """A map (height, width, channels) at a place: cells count by how near their centers are."""
    height, width, _ = values.shape
    rows = np.maximum(0, 1 - np.abs(y * height - 0.5 - np.arange(height)))
    columns = np.maximum(0, 1 - np.abs(x * width - 0.5 - np.arange(width)))
    return columns @ np.tensordot(rows, values, 1)


def split_maps(memory):
    """The maps (height, width, dim) of an image's cells (cells, dim)."""
    maps, first = [], 0
    for height, width in SIZES:
        maps.append(memory[first : first + height * width].reshape(height, width, DIM))
        first += height * width
    return maps


def attend_to_maps(layer, token, reference, memory):
    """A token (dim,) that attends to places near its reference (2,)."""
    own = [number for number, times in enumerate(SAMPLED) for _ in range(times)]  # map of each place
    offsets = dense(layer.sampling_offsets, token).reshape(HEADS, len(own), 2)
    weights = softmax(dense(layer.attention_weights, token).reshape(HEADS, len(own)))
    maps, found = split_maps(memory), np.zeros((HEADS, DIM // HEADS))
    for head, place in np.ndindex(HEADS, len(own)):
        (height, width), values = SIZES[own[place]], maps[own[place]]
        x, y = reference + offsets[head, place] / [width, height]
        found[head] += weights[head, place] * sample(values, x, y).reshape(HEADS, -1)[head]
    return found.reshape(DIM)


def apply_layer(layer, x, position, references, memory, blocked):
    """Tokens (queries, 1 + K, dim) of an image after a layer."""
    x = np.stack([norm(layer.within_norm, query + attend(layer.within_attn, query)) for query in x])
    across = [x[:, k] + attend(layer.across_attn, x[:, k], blocked) for k in range(1 + POINTS)]
    x = norm(layer.across_norm, np.stack(across, 1)) + position
    found = np.zeros(x.shape)
    for place in np.ndindex(x.shape[:2]):
        found[place] = attend_to_maps(layer.cross_attn, x[place], references[place], memory)
    first, second = np.split(sigmoid(dense(layer.gateway.gate, np.concatenate([x, found], -1))), 2, -1)
    x = norm(layer.gateway.norm, first * x + second * found)
    return norm(layer.final_norm, x + mlp([layer.mlp.fc1, layer.mlp.fc2], x))


def embed(poses):
    """Waves (queries, K, dim) of poses (queries, K, 2): those of y, then of x, sine and cosine in turn."""
    waves = []
    for coordinate in (poses[..., 1], poses[..., 0]):
        for exponent in np.arange(DIM // 4) / (DIM // 4):
            angle = 2 * np.pi * coordinate / np.float64(np.float32(10000.0**exponent))
            waves += [np.sin(angle), np.cos(angle)]
    return np.stack(waves, -1)


def judge(head, poses, finest):
    """Corrections (queries, 1): the largest four channels at each point, and their mean."""
    rows = []
    for pose in poses:
        highest = [np.sort(sample(finest, *point))[::-1][:4] for point in pose]
        rows.append(np.concatenate([[*four, four.mean()] for four in highest]))
    return mlp(head.reg_conf.layers, np.stack(rows))


def decode(decoder, x, references, memory, blocked):
    """Outputs of all layers for one image."""
    finest, found, corners, anchors, before = split_maps(memory)[0], [], 0.0, None, 0.0
    for number, layer in enumerate(decoder.layers):
        position = mlp(decoder.query_pos_head.layers, embed(references))
        position = np.concatenate([np.zeros((QUERIES, 1, DIM)), position], 1)
        x = x + position
        before = x[:, 1:] if number else 0.0
        places = np.concatenate([references.mean(1, keepdims=True), references], 1)
        x = apply_layer(layer, x, position, places, memory, blocked)
        scores = dense(decoder.class_embed[number], x[:, 0])
        if number == 0:
            logit = np.log(np.maximum(references, 1e-3) / np.maximum(1 - references, 1e-3))
            anchors, first_scores = sigmoid(mlp(decoder.pre_pose_head.layers, x[:, 1:]) + logit), scores
        corners = corners + mlp(decoder.pose_embed[number].layers, x[:, 1:] + before)
        chances = softmax(corners.reshape(QUERIES, POINTS, 2, -1))
        references = anchors + (chances * BINS.distances()).sum(-1) / BINS.reg_scale
        scores = scores + judge(decoder.lqe_layers[number], references, finest)
        found.append((scores, references.reshape(QUERIES, -1), corners.reshape(QUERIES, -1)))
    logits, poses, corners = (np.stack(part) for part in zip(*found))
    return {
        "layer_logits": logits,
        "layer_poses": poses,
        "layer_corners": corners,
        "first_logits": first_scores,
        "first_poses": anchors.reshape(QUERIES, -1),
    }


def test_all_outputs_are_those_of_the_formulas():
    decoder, random = make_decoder(), np.random.default_rng(1)
    cells = sum(height * width for height, width in SIZES)
    x, memory = (random.standard_normal((BATCH, *shape, DIM)) for shape in ((QUERIES, 1 + POINTS), (cells,)))
    starts = random.uniform(0.1, 0.9, (BATCH, QUERIES, POINTS, 2))
    starts[0, 0, :2] = [[0.0, 1.0], [0.9995, 0.0005]]
    blocked = (random.random((BATCH, QUERIES, QUERIES)) < 0.4) & ~np.eye(QUERIES, dtype=bool)
    inputs = [paddle.to_tensor(part.astype(np.float64)) for part in (x, starts, memory, blocked)]
    with paddle.no_grad():
        found = decoder(*inputs[:3], SIZES, inputs[3])
    for image in range(BATCH):
        expected = decode(decoder, x[image], starts[image], memory[image], blocked[image])
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            ours = found[name].numpy()
            ours = ours[image] if name.startswith("first") else ours[:, image]
            np.testing.assert_allclose(ours, value, rtol=1e-9, atol=1e-10, err_msg=name)
