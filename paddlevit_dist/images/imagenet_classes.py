"""Classes of ImageNet-1k, which most published classifiers have: WordNet ids and short names."""

import functools
from pathlib import Path


@functools.cache
def read_table() -> list[list[str]]:
    """Return WordNet id, number in ILSVRC 2012 and short name of each class, in the order of the WordNet ids."""
    table = Path(__file__).with_name("imagenet_classes.txt").read_text(encoding="ascii")
    return [line.split(" ", 2) for line in table.splitlines()]


def names_by_synset() -> dict[str, str]:
    """Return a short unique name of each class by its WordNet id, in the order of the classes."""
    return {wnid: name for wnid, _, name in read_table()}


def list_synsets(classes: int) -> list[str] | None:
    """Return the WordNet ids in the order of published classifiers if this is their number of classes, else None."""
    synsets = list(names_by_synset())
    return synsets if classes == len(synsets) else None


def to_synset(name: str) -> str:
    """Return the WordNet id of a class that the table names so; any other name is returned unchanged."""
    return _synsets_by_name().get(name, name)


@functools.cache
def _synsets_by_name() -> dict[str, str]:
    names = names_by_synset()
    folded = [name.casefold() for name in names.values()]
    return {name: synset for synset, name in zip(names, folded) if folded.count(name) == 1}  # Cardigan and cardigan
