"""The published Point Transformers."""

from support.networks.published_sizes import require_sizes

from paddlevit_dist.core.tasks.model_factory import variant_options

# Millions: PTv3's table of efficiency, Sonata's table 4 (encoder; with a decoder), Concerto's and Utonia's READMEs.
MILLIONS = {"ptv3": 46.2, "sonata": 108.5, "sonata_decoder": 124.8}
WHOLE = {"concerto_small": 39, "concerto_large": 208, "utonia": 137}


def test_sizes_are_those_of_the_authors():
    require_sizes({**MILLIONS, **WHOLE}, num_classes=20)


def test_heads_have_sixteen_channels_and_utonias_eighteen():
    for name in (*MILLIONS, *WHOLE):
        options = variant_options(name)
        parts = [part for part in ("encoder", "decoder") if options.get(f"{part}_heads")]
        widths = {
            width / heads
            for part in parts
            for width, heads in zip(options[f"{part}_channels"], options[f"{part}_heads"], strict=True)
        }
        assert widths <= {18.0 if name == "utonia" else 16.0}, name
