"""EoMT as files for Paddle: bare weights give the classes of pixels, and instances with their masks."""

import numpy as np
import paddle
import pytest

from paddlevit_dist import create_model
from paddlevit_dist.extensions.export.command import export
from paddlevit_dist.extensions.export.trained_models import load_trained_model

SIZE, CLASSES = 64, 3
MEAN, DEVIATION = (np.array(each)[:, None, None] for each in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))


def _make_file(name, folder):
    paddle.seed(4)
    network = create_model(name, CLASSES, image_size=SIZE)
    for parameter in network.parameters():  # so that masks differ
        parameter.set_value(parameter * 3)
    network.eval()
    paddle.save(network.state_dict(), str(folder / "bare.pdparams"))
    return network, str(folder / "bare.pdparams")


def _make_pixels(number):
    return np.random.default_rng(number).integers(0, 256, (number, SIZE, SIZE, 3)).astype(np.uint8)


def _normalize(pixels):
    return ((pixels.transpose(0, 3, 1, 2) / 255 - MEAN) / DEVIATION).astype(np.float32)


@pytest.mark.parametrize("name", ["eomt_semantic_shapes", "eomt_instance_shapes"])
def test_files_for_paddle_compute_what_the_network_computes(name, tmp_path):
    network, file = _make_file(name, tmp_path)
    expected = {}
    for number in (1, 2):  # before the network is traced
        with paddle.no_grad():
            outputs = network(paddle.to_tensor(_normalize(_make_pixels(number))))
            found = outputs if "semantic" in name else network.best(outputs)
        expected[number] = [part.numpy() for part in ([found] if "semantic" in name else found)]
    export(load_trained_model(file, name, image_size=(SIZE, SIZE)), str(tmp_path / "out"))
    loaded = paddle.jit.load(str(tmp_path / "out"))
    for number, parts in expected.items():
        given = [paddle.to_tensor(_normalize(_make_pixels(number)))]
        if "semantic" in name:
            np.testing.assert_allclose(loaded(*given).numpy(), parts[0], rtol=0, atol=1e-4)
            continue
        given.append(paddle.full([number, 2], 100, "int64"))
        labels, boxes, scores, masks = (part.numpy() for part in loaded(*given))
        np.testing.assert_allclose(scores, parts[2], rtol=0, atol=1e-4)
        assert (labels == parts[0]).mean() > 0.9 and masks.shape == parts[3].shape
        same = np.abs(boxes / 100 - parts[1]).max(axis=2) < 1e-3
        assert same.mean() > 0.9  # equal scores may change places
