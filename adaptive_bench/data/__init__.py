"""Data sets: found in a folder of local files by one rule, or on the Hugging Face hub, and read to the last row."""

from adaptive_bench.data.draw import draw, held_out
from adaptive_bench.data.files import read_lines
from adaptive_bench.data.folders import MissingData, Place, find_place, folder_names
from adaptive_bench.data.source import (
    Row,
    Source,
    data_root,
    harness_splits,
    local_splits,
    read_rows,
    read_several,
    revision,
    stream_rows,
)

__all__ = [
    "MissingData",
    "Place",
    "Row",
    "Source",
    "data_root",
    "draw",
    "find_place",
    "folder_names",
    "harness_splits",
    "held_out",
    "local_splits",
    "read_lines",
    "read_rows",
    "read_several",
    "revision",
    "stream_rows",
]
