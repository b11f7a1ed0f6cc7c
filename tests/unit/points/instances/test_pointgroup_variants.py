"""The tables of these networks are those that their weights were trained with."""

from support.networks.variants import check_tables


def test_options_variants_and_declarations_are_those_of_the_table():
    check_tables("points.instances")
