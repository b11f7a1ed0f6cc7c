"""Detectors of every architecture, as files of every kind, find what the network finds; one of published dimensions."""

import pytest
from support.networks.exported_detectors import needs_onnx, require_graph, require_paddle_files
from support.networks.rtdetr_networks import SMALL

NAMES = ["detr_small", *SMALL, "rfdetr_seg_shapes", "rfdetr_shapes"]
# In half precision, RF-DETR's boxes with random weights are off by 1.1 %.
HALF = {name: "float32" if name.startswith("rfdetr") else "float16" for name in NAMES}
GRAPHS = [(name, *how) for name in NAMES for how in (("float", "float32"), ("uint8", HALF[name]))]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", ["float", "uint8"])
def test_bare_weights_become_files_that_find_what_the_network_finds(name, kind, tmp_path):
    require_paddle_files(name, kind, tmp_path)


@needs_onnx
@pytest.mark.parametrize("name, kind, precision", GRAPHS)
def test_one_graph_finds_what_the_network_finds(name, kind, precision, tmp_path):
    require_graph(name, kind, precision, tmp_path)


@needs_onnx
def test_a_detector_of_published_dimensions_is_one_graph(tmp_path):
    require_graph("dfine_s", "float", "float32", tmp_path, size=(320, 256))
