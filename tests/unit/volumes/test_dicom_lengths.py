"""Files that were cut: which element of a DICOM file announces more bytes than there are, in every encoding."""

import zlib

import pytest
from support.files.dicom_elements import element, item, meta

from paddlevit_dist.volumes import dicom

UNKNOWN = 0xFFFFFFFF
END_OF_ITEM, END_OF_SEQUENCE = element(0xFFFE, 0xE00D, None), element(0xFFFE, 0xE0DD, None)


EXPLICIT = meta(b"1.2.840.10008.1.2.1\0")
ROWS = element(0x0028, 0x0010, b"US", b"\4\0")
PIXELS = element(0x7FE0, 0x0010, b"OW", bytes(range(40)))


@pytest.fixture
def read(tmp_path):
    def read(content: bytes) -> str | None:
        (tmp_path / "a.dcm").write_bytes(content)
        return dicom.find_wrong_length(str(tmp_path / "a.dcm"))

    return read


def test_an_empty_file_is_said_to_be_empty(read):
    assert read(b"") == "it is empty"
    assert read(EXPLICIT) is None and read(bytes(128) + b"DICM") is None


@pytest.mark.parametrize("start", [EXPLICIT, b""])
def test_explicit_elements_end_where_they_say(read, start):
    whole = start + ROWS + PIXELS
    assert read(whole) is None and read(whole + bytes(7)) is None  # less than a header
    assert read(whole[:-1]) == "element (7fe0,0010) announces 40 bytes, only 39 remain"
    assert read(whole[:-40]) == "element (7fe0,0010) announces 40 bytes, only 0 remain"
    assert read(whole[:-41]) == "it ends within an element"
    large = start + element(0x7FE0, 0x0010, b"OW", bytes(1500), length=2_000_000)
    assert read(large) == "element (7fe0,0010) announces 2,000,000 bytes, only 1,500 remain"
    cut = start + element(0x0028, 0x0010, b"US", b"\4", length=2)
    assert read(cut) == "element (0028,0010) announces 2 bytes, only 1 remain"
    assert read(start + ROWS + element(0x0028, 0x0011, b"ZZ", bytes(4))) == (
        f"the element at byte {len(start) + len(ROWS):,} has the unknown type 'ZZ'"
    )


@pytest.mark.parametrize("syntax", [b"1.2.840.10008.1.2\0", b"1.2.840.10008.1.2 "])
def test_implicit_elements_end_where_they_say(read, syntax):
    looks_explicit = element(0x0028, 0x0010, None, bytes(0x5355), length=0x5355)  # the bytes of "US" are its length
    whole = meta(syntax) + looks_explicit + element(0x7FE0, 0x0010, None, bytes(30))
    assert read(whole) is None
    assert read(whole[:-3]) == "element (7fe0,0010) announces 30 bytes, only 27 remain"
    bare = element(0x0028, 0x0010, None, b"\4\0") + element(0x7FE0, 0x0010, None, bytes(30))
    assert read(bare) is None and read(bare[:-1]) == "element (7fe0,0010) announces 30 bytes, only 29 remain"


def test_big_endian_elements_end_where_they_say(read):
    first = element(0x0028, 0x0010, b"US", b"\0\4", ">")
    whole = meta(b"1.2.840.10008.1.2.2\0") + first + element(0x7FE0, 0x0010, b"OW", bytes(20), ">")
    assert read(whole) is None
    assert read(whole[:-2]) == "element (7fe0,0010) announces 20 bytes, only 18 remain"


def test_deflated_elements_end_where_they_say(read, monkeypatch):
    compressor = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    packed = compressor.compress(ROWS + PIXELS) + compressor.flush()
    start = meta(b"1.2.840.10008.1.2.1.99")
    assert read(start + packed) is None
    cut = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    short = cut.compress((ROWS + PIXELS)[:-4]) + cut.flush()
    assert read(start + short) == "element (7fe0,0010) announces 40 bytes, only 36 remain"
    assert "invalid" in read(start + b"\xff" * 50)
    monkeypatch.setattr(dicom, "_LARGEST_INFLATED", len(ROWS + PIXELS) - 1)
    assert read(start + packed) == f"it inflates to more than {len(ROWS + PIXELS) - 1:,} bytes"


@pytest.mark.parametrize("has_length", [True, False])
def test_elements_inside_sequences_are_read(read, has_length):
    def sequence(inner: bytes) -> bytes:
        if has_length:
            return element(0x0008, 0x1140, b"SQ", item(inner) + item(ROWS))
        items = item(inner, END_OF_ITEM, length=UNKNOWN) + item(ROWS)
        return element(0x0008, 0x1140, b"SQ", items + END_OF_SEQUENCE, length=UNKNOWN)

    nested = element(0x0040, 0x0275, b"SQ", item(element(0x0008, 0x0100, b"SH", b"ab")))
    assert read(EXPLICIT + sequence(ROWS) + ROWS + PIXELS) is None
    assert read(EXPLICIT + sequence(nested) + PIXELS) is None
    wrong = element(0x0008, 0x0100, b"SH", b"ab", length=999)
    told = read(EXPLICIT + sequence(element(0x0040, 0x0275, b"SQ", item(wrong))))
    assert told.startswith("element (0008,0100) announces 999 bytes, only ")
    assert read(EXPLICIT + sequence(ROWS) + PIXELS[:-1]).startswith("element (7fe0,0010) announces 40 bytes, only 39")


def test_fragments_of_compressed_pixels_are_no_elements(read):
    fragment = b"\xff\xd8" + b"\x28\x00\x10\x00US\xff\x7f" + bytes(30)  # would announce too much
    pixels = element(0x7FE0, 0x0010, b"OB", item() + item(fragment) + item(fragment) + END_OF_SEQUENCE, length=UNKNOWN)
    assert read(EXPLICIT + ROWS + pixels) is None
    cut = (EXPLICIT + ROWS + pixels)[: -len(END_OF_SEQUENCE) - 5]
    assert read(cut) == f"element (fffe,e000) announces {len(fragment)} bytes, only {len(fragment) - 5} remain"
    wrong = element(0x0008, 0x0100, b"SH", b"ab", length=999)
    after = element(0x0088, 0x0200, b"SQ", item(wrong))
    told = read(EXPLICIT + pixels + after)  # its items are elements again
    assert told == "element (0008,0100) announces 999 bytes, only 2 remain"
