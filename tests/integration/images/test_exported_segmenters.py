"""An exported network that labels pixels computes what the network computes; every kind of them at night."""

import pytest
from integration.images.test_onnx_export import needs_onnx
from support.networks.segmenters_of_others import require_same_export


def test_paddles_files_compute_the_same_for_any_batch_and_size(tmp_path):
    require_same_export("segformer_b0", tmp_path)


@needs_onnx
@pytest.mark.parametrize("name", ["segformer_b0", "upernet_convnext_tiny"])
def test_an_onnx_file_computes_the_same_for_any_batch_and_size(name, tmp_path):
    require_same_export(name, tmp_path, "onnx")
