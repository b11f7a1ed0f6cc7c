"""Exports of each kind of network that labels pixels compute what the network computes."""

import pytest
from integration.images.test_onnx_export import needs_onnx, require_same_outputs
from support.networks.segmenters_of_others import ANY_SIZE, ONE_OF_EACH, require_same_export, small


@pytest.mark.parametrize("name", [name for name in ONE_OF_EACH if name != "segformer_b0"])
def test_paddles_files_compute_the_same_for_any_batch_and_size(name, tmp_path):
    require_same_export(name, tmp_path)


@needs_onnx
@pytest.mark.parametrize("name", [name for name in ANY_SIZE if not name.endswith(("former_b0", "convnext_tiny"))])
def test_an_onnx_file_computes_the_same_for_any_batch_and_size(name, tmp_path):
    require_same_export(name, tmp_path, "onnx")


@needs_onnx
@pytest.mark.parametrize("name", ["segformer_b0", "upernet_swin_tiny"])
def test_onnx_of_one_size_computes_the_same(name, tmp_path):
    require_same_outputs(small(name, seed=1, image_size=(64, 160)), tmp_path)  # pooled windows do not divide 2 x 5
