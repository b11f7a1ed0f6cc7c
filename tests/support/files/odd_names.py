"""Names of files that a list has to keep whole: signs that divide lines, mark images, or mean something elsewhere."""

ODD_NAMES = (
    *("photo (1)", " first", "last ", "two  spaces", "tab\tinside", "b -1", "c 1", "-1", "0"),
    *("a#b", "a,b;c", 'it\'s "it"', "50%20", "a & <b>", "a.jpg", "back\\slash", "x_y=z"),
    *("Straße", "写真", "e\u0301", "no\xa0break", "line\u2028sign", "form\x0cfeed", "next\x85line"),
)
