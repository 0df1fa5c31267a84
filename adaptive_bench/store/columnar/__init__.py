"""Texts of many files, arranged so that they compress well, and given back byte for byte.

Records say the same things in many files: documents at each measured point, counts of each layer, losses at each step.
Compressed one after the other they take more than twice as much as arranged like this:

- `forms`: a text is a form, which many share, and the values in it;
- `prediction`: a value that follows from those beside it is left out;
- `literals`: the others stand by their kind, numbers in binary, like beside like;
- `part`: files of one kind together, and what a reader accepts of them.
"""

from __future__ import annotations

from .literals import MOST_VALUES
from .part import STREAMS, arranged, restored

__all__ = ["MOST_VALUES", "STREAMS", "arranged", "restored"]
