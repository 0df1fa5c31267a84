"""The stored tables are the paper's."""

import os
from pathlib import Path

import pytest

from adaptive_bench.config_file import load_config
from adaptive_bench.leaderboard.paper import paper_tables

SOURCE = Path(os.environ["ADAPTIVE_BENCH_SHARED"]) / "seed/gateskip.tex"


def test_every_table_is_rectangular():
    tables = paper_tables()
    assert [table["table"] for table in tables] == list(range(1, 14))
    for table in tables:
        assert len(table["asks"]) == len(table["columns"])
        assert {len(row["values"]) for row in table["rows"]} == {len(table["columns"])}
        assert sum(columns for _, columns in table["groups"]) in (0, len(table["columns"]))


def test_known_values():
    first = {row["name"]: row["values"] for row in paper_tables()[0]["rows"]}
    assert first["GateSkip (ours)"][3] == "22.14 ± 1.36"
    assert first["Llama-1b (random skipping)"][:2] == ["", "10.30 ± 0.54"]


@pytest.mark.skipif(not SOURCE.is_file(), reason="needs the paper's source, which is not part of the repository")
def test_every_value_stands_in_the_paper():
    text = SOURCE.read_text(encoding="utf-8")
    for table in paper_tables():
        for row in table["rows"]:
            for value in filter(None, row["values"]):
                mean, _, deviation = value.partition(" ± ")
                assert (f"\\meanstd{{{mean}}}{{{deviation}}}" if deviation else mean) in text
        if table["source"].startswith("tab:"):
            assert f"\\label{{{table['source']}}}" in text


def test_every_command_names_presets_that_have_the_levels_of_their_table():
    for table in paper_tables():
        commands = [*table["presets"]["nano"], *table["presets"]["paper"]]
        assert commands
        for command in commands:
            config = load_config(command.split("--config ")[1].split()[0])
            assert config.match_on == "tokens" and config.match_phase == "all"
        for command in table["presets"]["nano"]:
            levels = load_config(command.split("--config ")[1].split()[0]).levels
            asked = {level for what, level in table["asks"] if what is not None}
            assert {round(level, 6) for level in asked} <= {round(level, 6) for level in levels}
