"""COCO's numbers of keypoints against pycocotools in 300 random cases."""

import numpy as np
import pytest
from support.networks import keypoint_peer


@pytest.mark.parametrize("first", range(100, 400, 50))
def test_random_cases_give_the_numbers_of_pycocotools(first):
    for seed in range(first, first + 50):
        dataset, results, sigmas = keypoint_peer.random_case(seed)
        values = keypoint_peer.score(keypoint_peer.match(dataset, results, sigmas))
        expected = keypoint_peer.averaged(dataset, results, sigmas)
        numbers = [expected[name] for name in values]
        np.testing.assert_allclose([*values.values()], numbers, rtol=0, atol=1e-12, err_msg=f"seed {seed}")
