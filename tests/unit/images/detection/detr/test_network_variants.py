"""The published DETRs."""

from support.networks.published_sizes import require_sizes

from paddlevit_dist.core.tasks.model_factory import variant_options

NAMES = [f"detr_{backbone}" for backbone in ("resnet50", "resnet50_dc5", "resnet101", "resnet101_dc5")]


def test_sizes_are_those_of_the_authors():
    """The count that their evaluation of R50 prints, and the table of their README."""
    require_sizes(dict(zip(NAMES, (41_302_368, 41_302_368, 60, 60))), num_classes=91)


def test_what_no_shape_tells_is_as_in_the_paper():
    for name in NAMES:
        options = variant_options(name)
        assert options["num_heads"] == 8 and options.get("dilation", False) == name.endswith("dc5")
        assert options["frozen_batch_norm"] and options["frozen_stages"] == 2
