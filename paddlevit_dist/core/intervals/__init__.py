"""Confidence intervals of scores: their variation with other samples of the same kind. Needs only NumPy.

- ``recompute``: functions to values of weighted samples, and what is declared of values
- ``units``: counts what each value depends on, and ``evidence`` says what samples cannot show
- ``resampling``: recomputes the values of a function for half samples, and computes intervals from their deviation
- ``swaps``: how the difference of two models varies if their results are swapped
- ``proportions``: intervals of proportions and of their paired differences, in closed form
- ``quantiles``: of distributions, and p
- ``score_ranges``: lowest and highest possible values
- ``scores``: such functions for classes, confusions, segments, and sums of numbers
"""

from ..runtime.lazy_names import lazy_names

__all__, __getattr__, __dir__ = lazy_names(__name__, __file__)
