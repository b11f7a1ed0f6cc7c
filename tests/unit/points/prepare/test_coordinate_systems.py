"""Units of the coordinate systems in laser scans, against what EPSG's registry says of them."""

import struct

import pytest
from support.refusals import refusal_of

from paddlevit_dist.points.prepare.coordinate_systems import parse_geo_keys, parse_wkt

FT_US, FT = 1200 / 3937, 0.3048
GEOGCS = (
    'GEOGCS["NAD83",DATUM["North_American_Datum_1983",SPHEROID["GRS 1980",6378137,298.257222101]],'
    'PRIMEM["Greenwich",0],UNIT["degree",0.0174532925199433]]'
)
PLANE = f'PROJCS["a, [b] ""c""",{GEOGCS},PROJECTION["Transverse_Mercator"],UNIT["US survey foot",0.304800609601219]]'
METERS = f'PROJCS["UTM",{GEOGCS},UNIT["metre",1,AUTHORITY["EPSG","9001"]],AXIS["Easting",EAST],AXIS["Northing",NORTH]]'
HEIGHTS = 'VERT_CS["NAVD88 height",VERT_DATUM["NAVD88",2005],UNIT["{}",{}],AXIS["{}",{}]]'
PLANE_2 = (
    'PROJCRS["a",BASEGEOGCRS["NAD83",DATUM["NAD83",ELLIPSOID["GRS 1980",6378137,298.257,LENGTHUNIT["metre",1]]],'
    'PRIMEM["Greenwich",0,ANGLEUNIT["degree",0.0174532925199433]]],CONVERSION["b",METHOD["Transverse Mercator"],'
    'PARAMETER["False easting",600000,LENGTHUNIT["metre",1]]],CS[Cartesian,{}],AXIS["x",east,ORDER[1]{}],'
    'AXIS["y",north,ORDER[2]{}]{}]'
)
OWN = ',LENGTHUNIT["foot",0.3048]'
HEIGHTS_2 = 'VERTCRS["h",VDATUM["v"],CS[vertical,1],AXIS["height",up,LENGTHUNIT["US survey foot",0.304800609601219]]]'
ESRI = f'PROJCS["P",{GEOGCS},UNIT["Foot_US",0.3048006096012192]],VERTCS["D",VDATUM["v"],'
ESRI += 'PARAMETER["Vertical_Shift",0.0],PARAMETER["Direction",{}],UNIT["Meter",1.0]]'


@pytest.mark.parametrize(
    ("text", "horizontal", "vertical"),
    [
        (PLANE, FT_US, FT_US),
        (METERS, 1, 1),
        (f'COMPD_CS["c",{METERS},{HEIGHTS.format("foot", 0.3048, "Up", "UP")}]', 1, FT),
        (f'COMPD_CS["c", {PLANE},\n  {HEIGHTS.format("metre", 1, "Depth", "DOWN")}]', FT_US, -1),
        (PLANE_2.format(2, OWN, OWN, ""), FT, FT),
        (PLANE_2.format(2, "", "", OWN), FT, FT),
        (PLANE_2.format(3, OWN, OWN, ',AXIS["h",up,ORDER[3],LENGTHUNIT["metre",1.0]]'), FT, 1),
        (f'COMPOUNDCRS["c",{PLANE_2.format(2, "", "", OWN)},{HEIGHTS_2}]', FT, FT_US),
        (f"BOUNDCRS[SOURCECRS[{PLANE_2.format(2, OWN, OWN, '')}],TARGETCRS[{GEOGCS}]]", FT, FT),
        (ESRI.format(1.0), FT_US, 1),
        (ESRI.format(-1.0), FT_US, -1),
        ('LOCAL_CS["site",LOCAL_DATUM["d",0],UNIT["foot",0.3048],AXIS["x",EAST]]', FT, FT),
    ],
)
def test_well_known_text_says_the_unit_of_x_and_y_and_of_z(text, horizontal, vertical):
    unit = parse_wkt("a.las", text)
    assert (unit.horizontal_m, unit.vertical_m) == pytest.approx((horizontal, vertical), rel=1e-9)


def test_text_without_a_unit_or_with_damage_names_none():
    for text in (
        "",
        "no text",
        'PROJCS["a"]',
        f"PROJCS[{'(' * 20_000}",
        'PROJCS["a",UNIT["foot",-1]]',
        "]]]]",
        "A[1e999]",
    ):
        assert parse_wkt("a.las", text) is None


GEODETIC = 'GEODCRS["w",DATUM["d",ELLIPSOID["e",6378137,298.257]],CS[{}],AXIS["a",north]]'


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (GEOGCS, "longitudes and latitudes (GEOGCS NAD83), not lengths: project it first"),
        (GEODETIC.format("ellipsoidal,2"), "longitudes and latitudes"),
        (GEODETIC.format("Cartesian,3"), "from the center of the earth (GEODCRS w), so z does not point up"),
        (f'COMPD_CS["c",{GEOGCS},{HEIGHTS.format("metre", 1, "Up", "UP")}]', "longitudes and latitudes"),
        ('GEOCCS["WGS 84",UNIT["metre",1]]', "from the center of the earth"),
    ],
)
def test_coordinates_that_are_no_lengths_above_the_ground_are_refused(text, told):
    message = refusal_of(parse_wkt, "a.las", text)
    assert message.startswith("a.las: its header says that ") and told in message


def make_keys(**values: int) -> bytes:
    """GeoTIFF's directory: GTModelType 1024, ProjectedCSType 3072, ProjLinearUnits 3076, its size in meters 3077,
    VerticalCSType 4096, VerticalUnits 4099."""
    names = {"model": 1024, "system": 3072, "unit": 3076, "size": 3077, "heights": 4096, "height": 4099}
    entries = [(names[name], 34736 if name == "size" else 0, 1, value) for name, value in values.items()]
    return struct.pack(f"<{4 * (len(entries) + 1)}H", 1, 1, 0, len(entries), *(each for row in entries for each in row))


@pytest.mark.parametrize(
    ("keys", "horizontal", "vertical"),
    [
        ({"model": 1, "system": 2263, "unit": 9003}, FT_US, FT_US),
        ({"model": 1, "system": 32767, "unit": 9002, "height": 9001}, FT, 1),
        ({"model": 1, "system": 2263}, FT_US, FT_US),  # New York: the number alone says so
        ({"model": 1, "system": 2256, "heights": 5703}, FT, 1),  # Montana, NAVD88 in meters
        ({"model": 1, "system": 25832}, 1, 1),  # UTM
        ({"model": 1, "system": 25832, "unit": 0, "heights": 6360}, 1, FT_US),  # NAVD88 in US survey feet
        ({"model": 1, "system": 25832, "heights": 5706}, 1, -1),  # Caspian depths
        ({"model": 1, "unit": 32767, "size": 1}, 0.3, 0.3),
    ],
)
def test_keys_say_the_unit_of_x_and_y_and_of_z(keys, horizontal, vertical):
    unit = parse_geo_keys("a.las", make_keys(**keys), struct.pack("<2d", 7.0, 0.3))
    assert (unit.horizontal_m, unit.vertical_m) == pytest.approx((horizontal, vertical), rel=1e-9)


def test_keys_without_a_unit_or_with_damage_name_none():
    whole = make_keys(model=1, unit=32767, size=1)
    for directory, doubles in (
        (b"", b""),
        (make_keys(model=1), b""),
        (make_keys(unit=9999), b""),
        (whole, b"\0" * 8),
        (whole, struct.pack("<2d", 1, -1)),
        *((whole[:end], b"") for end in range(len(whole))),
    ):
        assert parse_geo_keys("a.las", directory, doubles) is None


@pytest.mark.parametrize(("model", "told"), [(2, "longitudes and latitudes"), (3, "from the center of the earth")])
def test_keys_of_coordinates_on_the_globe_are_refused(model, told):
    assert told in refusal_of(parse_geo_keys, "a.las", make_keys(model=model, unit=9001), b"")
