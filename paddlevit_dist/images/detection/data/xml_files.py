"""XML that strangers wrote: plain elements and text. Document types, with whose entities a short file grows to
gigabytes or names other files, are refused; honest annotations have none.
"""

from __future__ import annotations

from typing import List
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat

from ....text_files import Place, read_bytes

_LARGEST_BYTES = 1 << 24
_DEEPEST = 100


def read_xml(path: Place) -> Element:
    """The outermost element of a file.

    Raises:
        OSError: it cannot be read.
        ValueError: not XML, too long, nested too deeply, or with a document type; one line.
    """
    return parse_xml(read_bytes(path, _LARGEST_BYTES))


def parse_xml(content: bytes) -> Element:
    """The same for a file's content."""
    builder = TreeBuilder()
    depth: List[int] = [0]

    def start(name: str, attributes: dict) -> None:
        depth[0] += 1
        if depth[0] > _DEEPEST:
            raise ValueError("it is nested too deeply")
        builder.start(name, attributes)

    def end(name: str) -> None:
        depth[0] -= 1
        builder.end(name)

    def refuse(*_: object) -> None:
        raise ValueError("it has a document type (<!DOCTYPE>), which such files do not need")

    parser = expat.ParserCreate()
    parser.buffer_text = True
    parser.StartDoctypeDeclHandler = refuse
    parser.EntityDeclHandler = refuse
    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.CharacterDataHandler = builder.data
    try:
        parser.Parse(content, True)
    except expat.ExpatError as error:
        raise ValueError(f"it is not XML: {error}") from None
    except LookupError as error:  # of an encoding that does not exist
        raise ValueError(f"it is not XML: {error}") from None
    return builder.close()
