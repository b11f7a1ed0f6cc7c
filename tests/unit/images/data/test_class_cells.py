"""Cells of the column of a class, each as written, in capitals and with spaces."""

import pytest

from paddlevit_dist.images.data.class_cells import ClassValues

TRUE = "1 1.0 1,0 1,00 true yes y x wahr ja vrai oui verdadero sí si vero sì sim verdadeiro истина да 是 真".split()
FALSE = "0 0.0 0,0 false no n falsch nein faux non falso não ложь нет 否 假".split()
MISSING = ["", "nan", "na", "n/a", "null", "none", "<na>"]


def test_cells_of_a_class():
    for words, value in ((TRUE, 1), (FALSE, 0), (("-1", "-1.0", "-1,0"), -1)):
        for word in words:
            for cell in (word, word.upper(), f" {word} "):
                assert ClassValues()[cell] == value == ClassValues(True)[cell], cell
    for word in MISSING:
        for cell in (word, word.upper(), f" {word}"):
            assert (ClassValues()[cell], ClassValues(is_empty_absent=True)[cell]) == (-1, 0), cell
    for cell in (None, float("nan")):
        assert (ClassValues()[cell], ClassValues(is_empty_absent=True)[cell]) == (-1, 0)
    for cell in (True, 1, 1.0, False, 0, 0.0, -1):
        assert ClassValues()[cell] == cell
    for cell in ("2", "0.5", "1,5", "-2", "1,000", "t", "often", "0,1"):
        with pytest.raises(ValueError):
            ClassValues()[cell]
        assert not ClassValues().accepts(cell)
