"""Measures what adaptive compute could save at most on one model and one task, before anything is trained.

Every figure here is a bound or a description, never a method, because the decisions look at the answer (the model's own
or the right one). Nothing in this package is registered, so no spec can name it and no table can rank it.
"""
