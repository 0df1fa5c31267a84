"""What findings say beside a control: on its own sites, and at savings where it was measured."""

from dataclasses import replace

from swept_board import FEW, SPARING, TRAINED, UNTRAINED, section

from adaptive_bench import registry
from adaptive_bench.cli.headroom import verdict
from adaptive_bench.cli.leaderboard import findings
from adaptive_bench.cli.options import tables_of
from adaptive_bench.leaderboard.grid import STATIC, grids
from adaptive_bench.leaderboard.markdown import written
from adaptive_bench.leaderboard.terminal import render
from adaptive_bench.method import method_class
from adaptive_bench.spec import MethodSpec


def test_a_confounded_site_set_is_said_wherever_the_two_are_compared(board):
    curves = {"random_skip": 20, TRAINED: 40, "mod": 90}
    alike = {name: {"eligible": "layers 0-3"} for name in curves}
    found = board(curves, rows=alike | SPARING)
    text = findings(found)
    where = "ayers 0-3: `random_skip`, `static_depth[trained=true]`; layers 1, 3: `mod`."
    assert where in section(text, "Where tokens may skip")
    clause = "These may skip at sites other than those of `{}` (layers 0-3): `mod` layers 1, 3."
    assert clause.format(TRAINED) in section(text, "Who is better than static depth")
    assert clause.format("random_skip") in section(text, "What random controls show")
    note = (
        "Methods differ in their eligible sites (layers 0-3: random_skip, static_depth[trained=true]; layers 1, 3: mod)"
    )
    assert note in written(found.rows) and note in render(found.lines, wide=True)
    fair = board(curves, rows=alike)
    assert "sites" not in findings(fair) and "eligible sites" not in written(fair.rows)


def test_sites_that_are_not_recorded_are_said_to_be_unknown_and_not_to_differ(board):
    text = findings(board({"random_skip": 20, "mod": 90}))
    said = section(text, "Where tokens may skip")
    assert (
        said.startswith("- **nano\\_math**: eligible sites were not recorded for any method")
        and "sites other" not in text
    )
    half = board({"random_skip": 20, "mod": 90, "calm": 90}, rows={"mod": SPARING["mod"]})
    assert "eligible sites were not recorded for `calm`, `random_skip`" in section(
        findings(half), "Where tokens may skip"
    ).replace("`random_skip`, `calm`", "`calm`, `random_skip`")


def test_methods_that_skip_nowhere_spare_no_sites(board):
    rows = {"dense": {"eligible": "none"}, "mod": {"eligible": "layers 0-3"}, "calm": {"eligible": "layers 0-3"}}
    found = board({"dense": {0.0: 95}, "mod": 20, "calm": 58}, rows=rows)
    assert section(findings(found), "Where tokens may skip") == ""


def test_an_interpolated_control_is_marked_and_asked_where_it_was_measured(board):
    found = board({TRAINED: FEW, "mod": 95, "calm": {0.0: 95, 0.3: 95}})
    (row,) = [row for row in found.rows if row.method == TRAINED and row.level == 0.15]
    (grid,) = grids(found.rows)
    assert grid.score(TRAINED, 0.15).startswith(f"{100 * row.score:.1f}≈")
    first, second, *table = section(findings(found), "Who is better than static depth").split("\n")
    assert f"`{TRAINED}` scores 20.0 % at a saving of 11.0 %, where it was measured; p" in first
    assert "Ahead of it: `mod`, `calm`≈;" in first  # calm was measured at 0 and 30 % alone
    assert "scores 98.0 % at a saving of 22.0 %" in second and "Ahead of it: none;" in second
    assert "not separated from it: `mod`, `calm`≈" in second
    said = [line.partition("** | ")[2].partition(" [")[0] for line in table[3:]]
    where = (("11.0 %", "+75.0"), ("22.0 %", "-3.0"))
    assert said == [f"{saving} | {name} | {by}" for saving, by in where for name in ("`mod`", "`calm`≈")]


def test_what_the_page_says_against_a_control_has_its_mark(board):
    def said(control):
        (table,) = tables_of(board({TRAINED: control, "mod": 95}).rows)
        (row,) = [row for row in table["rows"] if row["method"] == "mod"]
        return row["cells"][-1]["over_static"]

    assert said(FEW).endswith("] ≈") and said(40).endswith("]")


def test_a_control_that_was_measured_nearby_is_asked_at_the_level(board):
    said = section(findings(board({TRAINED: 40, "mod": 95})), "Who is better than static depth")
    assert said.startswith(f"- **nano\\_math**: `{TRAINED}` scores 40.0 [") and "it was measured" not in said


def test_a_control_without_points_between_5_and_30_percent_says_nothing(board):
    said = section(findings(board({TRAINED: {0.0: 99, 0.4: 10}, "mod": 95})), "Who is better than static depth")
    assert said.endswith("was measured at 5 to 30 %: no comparison is made.")


def test_only_what_every_seed_was_measured_at_is_a_point_of_the_control(board):
    found = board({TRAINED: FEW, "mod": 95})
    sweeps = found.answers["run"].sweeps[TRAINED, "bench", "nano_math", None]
    sweeps[0] = replace(sweeps[0], dials=(0.0, 0.11, 0.25))  # as if seed 1 had been asked for something else
    said = section(findings(found), "Who is better than static depth")
    assert "at a saving of 11.0 %" in said and "at a saving of 22.0 %" not in said


def test_a_method_whose_seeds_do_not_all_reach_the_control_s_saving_is_marked_there(board):
    found = board({TRAINED: FEW, "mod": 95, "calm": 95})
    sweeps = found.answers["run"].sweeps["mod", "bench", "nano_math", None]
    sweeps[0] = replace(sweeps[0], points=sweeps[0].points[:20], dials=sweeps[0].dials[:20])  # up to 19 %
    first, second, *table = section(findings(found), "Who is better than static depth").split("\n")
    assert "Ahead of it: `mod`, `calm`;" in first and "`mod`*" in second
    for row in ("11.0 % | `mod` | +75.0 [", "22.0 % | `mod`* | -3.0 [", "22.0 % | `calm` | -3.0 ["):
        assert row in "\n".join(table)


def test_the_verdict_is_not_held_against_a_control_that_was_measured_elsewhere(board):
    told = verdict(board({"random_skip": 20, TRAINED: FEW, "mod": 95}), "net")
    assert f"({TRAINED}≈" not in told and "(random_skip" not in told
    assert f"ahead of random skipping ({TRAINED}: no measured point within 2 points of this saving on one" in told
    told = verdict(board({"random_skip": 20, TRAINED: 95, "mod": 95}), "net")
    assert f"but not of the control {TRAINED}" in told and "measured point" not in told


def test_who_decides_nothing_per_token_belongs_to_the_static_family(board):
    curves = {"random_skip": 20, TRAINED: 40, "layerskip": 95, "mod": 90}
    found = board(curves)
    text = findings(found)
    said = section(text, "Who is better than static depth")
    assert (
        "Ahead of it: `mod`;" in said
        and "; of the methods that do not decide per token, ahead of it: `layerskip`." in said
    )
    assert "`layerskip` | +55.0 [" in said and "`mod` | +50.0 [" in said
    assert "1 of 1 methods that decide per token are ahead of it (best: `mod`" in section(
        text, "What random controls show"
    )
    assert "mod keeps" in verdict(found, "net") or "mod scores" in verdict(found, "net")
    assert "but not of the control layerskip" in verdict(found, "net")
    assert "Not deciding per token, like static_depth: layerskip." in written(found.rows)
    plain = findings(board({TRAINED: 40, "mod": 90})) + written(board({UNTRAINED: 40}).rows)
    assert "ot decide per token" not in plain and "ot deciding per token" not in plain


def test_the_static_family_is_that_of_the_methods_themselves():
    skipping_nothing = {"dense", "base", "gated"}
    found = {
        name
        for name in registry.names("methods")
        if not (method := method_class(MethodSpec.parse(name))).adapts and not method.draws
    }
    assert found - skipping_nothing == set(STATIC)
