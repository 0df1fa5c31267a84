"""Reads data sets from a folder of local files or from the Hugging Face hub."""

from adaptive_bench.data.sources import (
    MissingData,
    Place,
    Row,
    Source,
    data_root,
    draw,
    harness_splits,
    held_out,
    local_splits,
    read_lines,
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
    "harness_splits",
    "held_out",
    "local_splits",
    "read_lines",
    "read_rows",
    "read_several",
    "revision",
    "stream_rows",
]
