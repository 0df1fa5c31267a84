"""The one rule by which a data set of the hub is found in a data folder."""

import json
from pathlib import Path

import pytest

from adaptive_bench.data import Source, data_root, find_place, folder_names, harness_splits, read_rows
from adaptive_bench.errors import EnvironmentProblem
from adaptive_bench.hub import HubAnswer


def _write(folder, split, *rows):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.mark.parametrize(
    ("hub_id", "configuration", "folder"),
    [
        ("baber/piqa", None, "piqa"),
        ("openai/gsm8k", "main", "gsm8k"),
        ("allenai/winogrande", "winogrande_xl", "winogrande/winogrande_xl"),
        ("EleutherAI/lambada_openai", "default", "lambada"),
        ("EleutherAI/lambada_openai", "de", "lambada_openai/de"),
        ("wmt/wmt16", "ro-en", "wmt16_ro_en"),
    ],
)
def test_a_data_set_is_found(hub_id, configuration, folder, tmp_path):
    _write(tmp_path / folder, "test", {"n": 1})
    assert find_place(tmp_path, hub_id, configuration).folder == tmp_path / folder
    assert folder in folder_names(hub_id, configuration)
    assert read_rows(Source(hub_id, configuration=configuration), "test", tmp_path) == [{"n": 1}]


def test_the_more_exact_name_wins(tmp_path):
    for folder in ("gsm8k", "openai/gsm8k", "gsm8k_socratic", "gsm8k/socratic", "openai/gsm8k/socratic"):
        _write(tmp_path / folder, "test", {"n": folder})
        found = find_place(tmp_path, "openai/gsm8k", "socratic")
        assert found.folder == tmp_path / folder
        assert (found.subject is None) == ("socratic" in folder)


def test_a_subject_is_its_rows_of_a_plain_folder(tmp_path):
    rows = [{"subject": subject, "n": n} for n, subject in enumerate(["anatomy", "virology", "anatomy"])]
    _write(tmp_path / "mmlu", "test", *rows)
    assert [row["n"] for row in read_rows(Source("cais/mmlu", configuration="anatomy"), "test", tmp_path)] == [0, 2]
    assert len(read_rows(Source("cais/mmlu", configuration="all"), "test", tmp_path)) == 3
    with pytest.raises(EnvironmentProblem, match=r"'subject' 'astronomy', but test.jsonl has none.*mmlu/astronomy"):
        read_rows(Source("cais/mmlu", configuration="astronomy"), "test", tmp_path)


def test_another_data_set_of_the_same_name_is_not_taken(tmp_path):
    traces = Source("multi-domain-reasoning/gsm8k", exact=True)
    _write(tmp_path / "gsm8k", "train", {"n": 1})
    with pytest.raises(EnvironmentProblem, match=r"called multi-domain-reasoning/gsm8k, but there is none.*--data-dir"):
        read_rows(traces, "train", tmp_path)
    _write(tmp_path / "multi-domain-reasoning" / "gsm8k", "train", {"n": 2})
    assert read_rows(traces, "train", tmp_path) == [{"n": 2}]


def test_a_split_that_is_not_there_is_told_with_those_that_are(tmp_path):
    _write(tmp_path / "piqa", "validation", {"n": 1})
    with pytest.raises(EnvironmentProblem, match=r"'train' of baber/piqa cannot be read: .*\(found: validation\)"):
        read_rows(Source("baber/piqa"), "train", tmp_path)


def test_a_copy_of_the_hubs_repository_is_read(tmp_path):
    (tmp_path / "piqa" / "data").mkdir(parents=True)
    (tmp_path / "piqa" / "data" / "train.csv").write_text("goal,label\neat,1\n")
    assert read_rows(Source("baber/piqa", fields=("goal",)), "train", tmp_path) == [{"goal": "eat", "label": 1}]
    with pytest.raises(EnvironmentProblem, match="lacks sol1"):
        read_rows(Source("baber/piqa", fields=("goal", "sol1")), "train", tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(EnvironmentProblem, match=r"has no train.jsonl and is no copy of the hub's repository"):
        read_rows(Source("owner/empty"), "train", tmp_path)


def test_the_environment_variable_stands_for_the_folder(tmp_path, monkeypatch):
    assert data_root(None) is None
    monkeypatch.setenv("ADAPTIVE_BENCH_DATA", str(tmp_path))
    assert data_root(None) == tmp_path
    assert data_root("elsewhere") == Path("elsewhere")


def test_an_unreachable_hub_and_a_gated_set_are_told(monkeypatch):
    with pytest.raises(EnvironmentProblem, match=r"data set 'baber/piqa' .* Hugging Face hub.*piqa/test\.jsonl"):
        read_rows(Source("baber/piqa"), "test")

    def gated(*_, **__):
        from datasets.exceptions import DatasetNotFoundError

        raise DatasetNotFoundError("Dataset 'owner/secret' is a gated dataset on the Hub.")

    monkeypatch.setattr("datasets.load_dataset", gated)
    monkeypatch.setattr("adaptive_bench.hub.ask", lambda: HubAnswer("https://hub", True, "status 200"))
    with pytest.raises(EnvironmentProblem, match=r"Accept its terms on the hub and set HF_TOKEN\. Set --data-dir"):
        read_rows(Source("owner/secret"), "test")


def test_a_field_of_several_kinds_is_told():
    with pytest.raises(EnvironmentProblem, match=r"the split 'test' mixes them"):
        harness_splits({"test": [{"answer": 1}, {"answer": "two"}]})
