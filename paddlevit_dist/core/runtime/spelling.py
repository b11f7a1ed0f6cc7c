"""Names that differ only in how Unicode spells accents, as macOS decomposes them, or in suffixes in capitals."""

import os
import unicodedata


def compose(name: str) -> str:
    """Return a name in its composed form (NFC), in which equal names are equal texts."""
    return unicodedata.normalize("NFC", name)


def find_spelling(path: str) -> str:
    """Return a path as the file system spells it: unchanged if it exists, or if no spelling of it does."""
    if path.isascii() or os.path.lexists(path):
        return path
    parent, name = os.path.split(path)
    if not name:  # it ends with separators
        found = find_spelling(parent)
        return path if found == parent else os.path.join(found, name)
    parent = find_spelling(parent)
    spellings = (os.path.join(parent, spelled) for spelled in (compose(name), unicodedata.normalize("NFD", name)))
    return next(filter(os.path.lexists, spellings), path)


def find_suffix(path: str) -> str:
    """Return what ``find_spelling`` does, with the suffix in capitals (a.TXT for a.txt) if only that exists."""
    found = find_spelling(path)
    if os.path.lexists(found):
        return found
    stem, suffix = os.path.splitext(path)
    in_capitals = find_spelling(stem + suffix.upper())
    return in_capitals if os.path.lexists(in_capitals) else found
