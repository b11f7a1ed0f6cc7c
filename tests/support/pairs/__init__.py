"""Finds faults that need two settings at once.

Tiny runs, whose settings together contain every pair of values, are checked against what must hold without a
reference: ``features`` lists the settings, ``materials`` writes the data, ``covering`` chooses combinations, ``runs``
starts them, ``invariants`` checks them, and ``campaign`` repeats this and shrinks what fails to the shortest command.
``make pairs`` starts it, and a nightly test runs it for minutes.
"""
