from adaptive_bench.leaderboard.layout import layouts
from adaptive_bench.leaderboard.row import Row


def rows_of(make_row, method, task, metric, scores, **changes):
    about = {"method": method, "task": task, "metric": metric, "axis": "tokens", "phase": "all"}
    return [Row.of(make_row(level=level, score=score, **about | changes)) for level, score in scores.items()]


def test_averages_stand_in_the_paper_s_columns_and_only_where_every_task_has_a_score(make_row):
    rows = rows_of(make_row, "mod", "gsm8k", "exact_match,strict-match", {0.0: 0.5, 0.05: 0.25, 0.15: None})
    rows += rows_of(make_row, "mod", "csqa", "exact_match,strict-match", {0.0: 0.7, 0.05: 0.35, 0.15: 0.1})
    rows += rows_of(make_row, "mod", "piqa", "acc,none", {0.6: 0.4})
    first, second = layouts(rows)
    assert first["table"] == 1 and first["groups"] == [("Generative", 6), ("Log-likelihood", 5)]
    (line,) = first["rows"]
    assert line["name"] == "MoD: mod"
    assert line["values_"] == ["60.0", "30.0", "–", "–", "–", "–", "–", "–", "–", "–", "40.0"]
    assert second["table"] == 2 and second["columns"] == ["CSQA (Gen.)", "GSM8K (Gen.)", "PIQA"]
    assert second["rows"][0]["values_"] == ["10.0 [84.0, 95.1]", "–", "–"]


def test_both_semantics_and_variants_find_their_rows(make_row):
    score = {0.0: 0.5}
    rows = rows_of(make_row, "gateskip", "nano_math", "exact_match,none", score)
    rows += rows_of(make_row, "gateskip", "nano_math", "exact_match,none", score, semantics="paper")
    rows += rows_of(make_row, "gateskip[shape=scalar]", "nano_math", "exact_match,none", score, status="partial")
    by_number = {table["table"]: table for table in layouts(rows)}
    assert [row["name"] for row in by_number[1]["rows"]] == [
        "GateSkip: gateskip",
        "GateSkip: gateskip@paper",
    ]
    assert by_number[5]["rows"][0]["section"] == "Gate output shape"
    assert by_number[5]["rows"][0]["values_"][0] == "50.0*"


def test_models_have_layouts_of_their_own_and_a_task_is_taken_as_it_was_asked_most(make_row):
    rows = []
    for model, documents, score in (("nano", 128, 0.5), ("nano", 8, 0.9), ("tiny", 8, 0.7)):
        about = {"model": model, "backbone": model, "documents": documents}
        rows += rows_of(make_row, "mod", "gsm8k", "exact_match,strict-match", {0.0: score}, **about)
    ones = [table for table in layouts(rows) if table["table"] == 1]
    assert [table["rows"][0]["values_"][0] for table in ones] == ["50.0", "70.0"]
    assert [table["caption"].rpartition(", ")[2] for table in ones] == ["model nano.", "model tiny."]


def test_models_that_follow_instructions_have_a_table_more(make_row):
    scores = {0.0: 0.5, 0.2: 0.4, 0.3: 0.3}
    for model, more in (("meta-llama/Llama-3.2-3B-Instruct", [3]), ("nano", [])):
        rows = rows_of(make_row, "gateskip", "gsm8k", "exact_match,strict-match", scores, model=model, backbone=model)
        found = {table["table"]: table for table in layouts(rows)}
        assert [number for number in found if number == 3] == more
    rows = rows_of(make_row, "gateskip", "gsm8k", "exact_match,strict-match", scores, model="a-instruct")
    (third,) = (table for table in layouts(rows) if table["table"] == 3)
    assert third["rows"][0]["values_"] == ["50.0", "40.0", "30.0", "–"]


def test_seconds_are_those_of_all_tasks_together(make_row):
    rows = rows_of(make_row, "gateskip", "gsm8k", "exact_match,strict-match", {0.05: 0.5, 0.15: 0.5}, seconds=2.5)
    rows += rows_of(make_row, "gateskip", "csqa", "exact_match,strict-match", {0.05: 0.5, 0.15: 0.5}, seconds=4.0)
    (tenth,) = (table for table in layouts(rows) if table["table"] == 10)
    assert tenth["rows"][0]["values_"] == ["6.5", "6.5", "–", "–", "–", "–"]


def test_the_default_alone_is_no_table_of_variants(make_row):
    rows = rows_of(make_row, "gateskip", "nano_math", "exact_match,none", {0.0: 0.5})
    assert [table["table"] for table in layouts(rows)] == [1]


def test_a_board_without_the_paper_s_axis_has_none(make_row):
    assert layouts([Row.of(make_row(axis="net"))]) == []


def test_a_tuned_method_stands_in_its_methods_row(make_row):
    tuned = "gateskip[shape=scalar,sparsity_weight=0.01]"
    rows = [
        Row.of(make_row(method=name, axis="tokens", level=0.0)) for name in (tuned, "gateskip[sparsity_weight=0.01]")
    ]
    variants = {tuned: "gateskip[shape=scalar]", "gateskip[sparsity_weight=0.01]": "gateskip"}
    (ablations,) = (table for table in layouts(rows, variants) if table["table"] == 5)
    assert [row["name"] for row in ablations["rows"]] == [
        f"Scalar gates: {tuned}",
        "Vector gates (default): gateskip[sparsity_weight=0.01]",
    ]
