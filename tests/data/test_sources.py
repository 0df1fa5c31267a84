"""The one rule by which a data set of the hub is found in a data folder; all that is missing is named at once."""

import gzip
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptive_bench.data import Source, harness_splits, read_lines, read_rows, read_several
from adaptive_bench.errors import EnvironmentProblem, SeveralProblems
from adaptive_bench.hub import HubAnswer, Needed, OutOfReach, raise_together
from adaptive_bench.tasks.csqa.task import harness_docs


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
    source = Source(hub_id, configuration=configuration)
    assert source.place(tmp_path).folder == tmp_path / folder and folder in source.folders
    assert read_rows(source, "test", tmp_path) == [{"n": 1}]


def test_the_more_exact_name_wins(tmp_path):
    for folder in ("gsm8k", "openai/gsm8k", "gsm8k_socratic", "gsm8k/socratic", "openai/gsm8k/socratic"):
        _write(tmp_path / folder, "test", {"n": folder})
        found = Source("openai/gsm8k", configuration="socratic").place(tmp_path)
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


def test_a_gated_set_is_told(monkeypatch):
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


WORDS = Source("someone/words", fields=("text",))


def test_explanations_are_named_with_the_questions(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.is_offline_mode", lambda: True)
    with pytest.raises(OutOfReach, match=r"commonsense_qa/train.jsonl, .*/validation.jsonl, cos_e/v1.11/train"):
        harness_docs()


def test_what_is_there_is_read_in_order_and_every_local_file_that_is_not_is_named(tmp_path):
    (tmp_path / "words").mkdir()
    for split in ("validation", "other"):
        (tmp_path / "words" / f"{split}.jsonl").write_text(f'{{"text": "{split}"}}\n')
    found = read_several([(WORDS, "other"), (WORDS, "validation")], tmp_path)
    assert found == [[{"text": "other"}], [{"text": "validation"}]]
    with pytest.raises(EnvironmentProblem, match=r"(?s)no train.jsonl.*no test.jsonl"):
        read_several([(WORDS, "train"), (WORDS, "test")], tmp_path)


def test_what_is_out_of_reach_is_one_sentence_beside_other_errors():
    answer = HubAnswer("https://hub", False, "off", is_off=True)
    wrong = EnvironmentProblem("A row is wrong.")
    first, second = (OutOfReach([Needed("data set", name, f"{name}.jsonl")], answer) for name in "ab")
    with pytest.raises(SeveralProblems) as raised:
        raise_together([first, SeveralProblems([wrong, second]), wrong])
    assert [type(error) for error in raised.value.errors] == [OutOfReach, EnvironmentProblem]
    assert "a.jsonl, b.jsonl" in str(raised.value)
    raise_together([])


# Data files that are missing, cut off, wrongly encoded or of another kind: told with file and line.
ROW = b'{"question": "Caf\xc3\xa9?", "answer": "4"}\n'


def _file(folder, content, name="test.jsonl"):
    path = folder / name
    path.write_bytes(content)
    return path


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (ROW + b'{"question": "cut o', r"test.jsonl cannot be read at line 2: Unterminated string.* column 14"),
        (
            ROW + ROW + b'{"question": "Caf\xe9?"}\n',
            r"UTF-8 .*jsonl cannot be read at line 3: .* 0xe9 in position 17",
        ),
        (ROW + b"[1, 2]\n", r"test.jsonl cannot be read at line 2: it is of the kind list"),
        (ROW + b'\n{"question": "Why?"}\n', r"at line 3: it lacks answer \(found: question\)"),
        (b"", r"test.jsonl is empty"),
    ],
)
def test_a_bad_line_is_named(content, message, tmp_path):
    with pytest.raises(EnvironmentProblem, match=message):
        read_lines(_file(tmp_path, content), ("question", "answer"))


def test_a_byte_order_mark_is_none_of_the_data_and_without_given_fields_every_row_has_those_of_the_first(tmp_path):
    with pytest.raises(EnvironmentProblem, match="line 2: it lacks b"):
        read_lines(_file(tmp_path, b'{"a": 1, "b": 2}\n{"a": 1}\n'))
    assert read_lines(_file(tmp_path, b'\xef\xbb\xbf{"a": 1}\n{"a": 2}\n')) == [{"a": 1}, {"a": 2}]


@pytest.mark.parametrize("cut", [5, 30, 60])
def test_a_compressed_file_that_is_cut_off_is_told(cut, tmp_path):
    whole = gzip.compress(b"".join(b'{"n": %d}\n' % n for n in range(1000)))
    with pytest.raises(EnvironmentProblem, match=r"train.jsonl.gz cannot be read at line \d+: .*cut off"):
        read_lines(_file(tmp_path, whole[:cut], "train.jsonl.gz"))
    with pytest.raises(EnvironmentProblem, match=r"cannot be read at line 0: Not a gzipped file"):
        read_lines(_file(tmp_path, ROW, "train.jsonl.gz"))


@given(rows=st.lists(st.fixed_dictionaries({"a": st.text(), "b": st.integers() | st.none()}), min_size=1))
def test_what_was_written_is_read(rows, tmp_path_factory):
    text = "".join(json.dumps(row, ensure_ascii=number % 2 == 0) + "\n" for number, row in enumerate(rows))
    folder = tmp_path_factory.mktemp("rows")
    content = text.encode("utf-8", errors="surrogatepass")
    if content.decode("utf-8", errors="ignore") != text:
        return  # a lone surrogate cannot be written as UTF-8
    assert read_lines(_file(folder, content)) == rows
    assert read_lines(_file(folder, gzip.compress(content), "test.jsonl.gz")) == rows
