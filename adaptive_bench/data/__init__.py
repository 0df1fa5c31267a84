"""Reads data sets from a folder of local files or from the Hugging Face hub."""

from adaptive_bench.data.sources import (
    Row,
    Source,
    data_root,
    draw,
    harness_splits,
    held_out,
    read_lines,
    read_rows,
    read_several,
    stream_rows,
)

__all__ = [
    "Row",
    "Source",
    "data_root",
    "draw",
    "harness_splits",
    "held_out",
    "read_lines",
    "read_rows",
    "read_several",
    "stream_rows",
]
