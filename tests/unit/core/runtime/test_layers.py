"""Layers tell whether a call of them does more than their class says."""

import paddle

from paddlevit_dist.core.runtime.layers import is_changed


def test_a_layer_that_does_more_than_its_class_is_changed():
    layers = [paddle.nn.ReLU() for _ in range(4)]
    layers[1].register_forward_pre_hook(lambda *_: None)
    layers[2].register_forward_post_hook(lambda *_: None)
    layers[3].forward = lambda x: x
    assert [is_changed(layer) for layer in layers] == [False, True, True, True]
