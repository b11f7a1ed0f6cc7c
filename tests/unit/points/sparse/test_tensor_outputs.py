"""Sparse tensors as outputs of a network under ``paddle.DataParallel``."""

import numpy as np
import paddle

from paddlevit_dist.points.sparse import PointFeatures, SparseTensor


def test_data_parallel_finds_the_features_of_outputs_however_nested():
    wrapper = paddle.DataParallel.__new__(paddle.DataParallel)
    places = np.array([[0, 1, 2, 3], [0, 2, 2, 2]], np.int32)
    x, points = SparseTensor(paddle.ones([2, 5]), places), PointFeatures(paddle.ones([2, 7]), places.astype(float))
    plain = paddle.ones([3])
    found = list(wrapper._find_tensor({"logits": [x, (plain,)], "points": points, "count": 2}))
    assert [id(one) for one in found] == [id(x.features), id(plain), id(points.features)]
