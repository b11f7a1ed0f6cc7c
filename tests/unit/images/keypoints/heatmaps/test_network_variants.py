"""The published ViTPoses and simple baselines."""

from support.networks.published_sizes import require_sizes

from paddlevit_dist.core.tasks.model_factory import variant_options

# Millions of parameters: ViTPose's README, with the simple decoder; table 2 of Xiao et al., "Simple Baselines".
VITPOSE = {"base": 86, "large": 304, "huge": 632}
BASELINES = {"resnet50": 34.0, "resnet101": 53.0, "resnet152": 68.6}


def test_sizes_are_those_of_the_authors():
    require_sizes({f"vitpose_{size}_simple": millions for size, millions in VITPOSE.items()}, num_classes=17)
    require_sizes({f"simple_baseline_{name}": millions for name, millions in BASELINES.items()}, num_classes=17)


def test_the_small_vitpose_has_twelve_heads_as_the_authors_configuration():
    for name in ("vitpose_small", "vitpose_small_simple"):
        assert variant_options(name)["backbone_options"] == {"num_heads": 12}
