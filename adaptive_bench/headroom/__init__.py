"""What adaptive compute could save at most, on one model and one task, before anything is trained.

Every figure here is a bound or a description, never a method: what decides looks at the answer (the model's own, or the
right one). Nothing in this package is registered, so that no spec can name it and no table can rank it.
"""
