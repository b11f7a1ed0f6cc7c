"""An exported network that labels pixels computes what the network computes; every kind of them at night."""

from support.networks.segmenters_of_others import require_same_export


def test_an_export_computes_the_same_for_any_batch(tmp_path):
    require_same_export("segformer_b0", tmp_path)
