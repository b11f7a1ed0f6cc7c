"""DETRPose's losses, against loops in NumPy, and what objects without labeled points and no objects do."""

import itertools

import numpy as np
import paddle
import pytest
from support.networks.rtdetr_networks import SIZE, make_images
from support.samples.pose_batches import CLASSES, NOISE, POINTS, SIGMAS, make_pose_network, make_targets

from paddlevit_dist.core.engine import compute_loss
from paddlevit_dist.images.detection.rtdetr.distributions import DistanceBins
from paddlevit_dist.images.keypoints.detrpose.criterion import PoseCriterion, PoseHeadOutputs

QUERIES = 4


def make_criterion(layers=1, **options):
    return PoseCriterion(SIGMAS, QUERIES, layers, bins=DistanceBins(), **options)


def similarity_by_hand(pose, points, area, label):
    terms = []
    for k in range(POINTS):
        if points[k, 2] > 0:
            square = ((pose[k] - points[k, :2] / SIZE[::-1]) ** 2).sum()
            terms.append(np.exp(-square / (2 * area / np.prod(SIZE) * (2 * SIGMAS[label][k]) ** 2)))
    return np.sum(terms) / (len(terms) + 1e-6)


def cost_by_hand(logit, pose, points, area, label):
    p = 1 / (1 + np.exp(-logit))
    focal = 0.25 * (1 - p) ** 2 * -np.log(p + 1e-8) - 0.75 * p**2 * -np.log(1 - p + 1e-8)
    distance = sum(np.abs(pose[k] - points[k, :2] / SIZE[::-1]).sum() for k in range(POINTS) if points[k, 2] > 0)
    return 2 * focal + 10 * distance + 4 * (1 - max(similarity_by_hand(pose, points, area, label), 1e-6))


@pytest.mark.parametrize("matchability", [None, 2.0])
def test_matching_and_losses_are_those_of_loops(matchability):
    random, targets = np.random.default_rng(3), make_targets((3, 1))
    points, areas, labels = (part.numpy() for part in targets[:3])
    logits = random.standard_normal((1, 2, QUERIES, CLASSES))
    near = points[:, [2, 0, 1, 0], :, :2] / SIZE[::-1] + 0.02 * random.standard_normal((2, QUERIES, POINTS, 2))
    poses = np.where(points[:, [2, 0, 1, 0], :, 2:] > 0, near, random.random(near.shape))
    heads = PoseHeadOutputs(paddle.to_tensor(logits), paddle.to_tensor(poses.reshape(1, 2, QUERIES, -1)))
    criterion = make_criterion(matchability=matchability)
    matches = criterion.matches(heads, targets)
    expected = dict.fromkeys(("class", "keypoints", "oks", "similarity"), 0.0)
    for image, number in enumerate((3, 1)):
        objects = range(number)
        costs = np.array(
            [
                [
                    cost_by_hand(
                        logits[0, image, q, labels[image, m]], poses[image, q], points[image, m], areas[image, m],
                        labels[image, m],
                    )
                    for m in objects
                ]
                for q in range(QUERIES)
            ]
        )  # fmt: skip
        best = min(itertools.permutations(range(QUERIES), number), key=lambda chosen: sum(costs[chosen, objects]))
        assert matches.query_of[0, image, :number].tolist() == list(best)
        of_query = {query: m for m, query in zip(objects, best)}
        for q, c in itertools.product(range(QUERIES), range(CLASSES)):
            m, p, score, weight = of_query.get(q), 1 / (1 + np.exp(-logits[0, image, q, c])), 0.0, None
            if m is not None and labels[image, m] == c:
                score = similarity_by_hand(poses[image, q], points[image, m], areas[image, m], c)
                expected["similarity"] += score
                expected["oks"] += 1 - score
                is_labeled = points[image, m, :, 2] > 0
                distance = np.abs(poses[image, q] - points[image, m, :, :2] / SIZE[::-1])
                expected["keypoints"] += distance[is_labeled].sum()
                score, weight = (score, score) if matchability is None else (score**2, 1.0)
            weight = (0.25 if matchability is None else 1.0) * p**2 if weight is None else weight
            expected["class"] -= weight * (score * np.log(p) + (1 - score) * np.log(1 - p))
    truth = criterion.ground_truth(targets, paddle.float64)
    matched = truth.gather(paddle.to_tensor(truth.rows(matches.object_of)))
    found = {**criterion.class_sums(heads, matched), **criterion.place_sums(heads, matched)}
    assert expected["similarity"] > 1
    for name, value in expected.items():
        np.testing.assert_allclose(found[name].item(), value, rtol=1e-9)


def test_classes_distances_and_similarities_decide_together_which_query_an_object_has():
    """Objects and queries near the middle: no cost alone tells which assignment is the cheapest."""
    for seed in range(12):
        random, targets = np.random.default_rng(seed), make_targets((3,), seed=seed)
        points, areas, labels = (part.numpy()[0] for part in targets[:3])
        points[..., :2], areas = np.array(SIZE[::-1]) * 0.4 + 0.2 * points[..., :2], 4 * areas
        logits = 2 * random.standard_normal((QUERIES, CLASSES))
        poses = 0.5 + 0.1 * random.standard_normal((QUERIES, POINTS, 2))
        heads = PoseHeadOutputs(*(paddle.to_tensor(part.reshape(1, 1, QUERIES, -1)) for part in (logits, poses)))
        near = targets._replace(points=paddle.to_tensor(points[None]), areas=paddle.to_tensor(areas[None]))
        found = make_criterion().matches(heads, near).query_of[0, 0].tolist()
        costs = {
            (q, m): cost_by_hand(logits[q, labels[m]], poses[q], points[m], areas[m], labels[m])
            for q, m in np.ndindex(QUERIES, 3)
        }
        orders = itertools.permutations(range(QUERIES), 3)
        best = min(orders, key=lambda order: sum(costs[q, m] for m, q in enumerate(order)))
        assert found == list(best), seed


@pytest.mark.parametrize("numbers", [(0, 0), (2, 0)])
def test_every_parameter_has_a_finite_gradient_whatever_the_objects(numbers):
    network, targets = make_pose_network(), make_targets(numbers, with_noise=True)
    network.train()
    criterion = PoseCriterion(
        SIGMAS, network.num_queries, len(network.decoder.layers), noise=NOISE, distill_weight=1.0, bins=DistanceBins()
    )
    outputs = network(make_images(2), None, targets)
    counts = {name: max(sum(numbers), 1) for name in criterion.normalizer_names}
    terms = criterion.terms(outputs, targets)
    assert {"class", "keypoints_auxiliary", "oks_denoising", "distill", "similarity"} < terms.keys()
    compute_loss(terms, counts, accumulation_steps=1, processes=1).backward()
    for name, parameter in network.named_parameters():
        if not parameter.stop_gradient:
            assert parameter.grad is not None and np.isfinite(parameter.grad.numpy()).all(), name
