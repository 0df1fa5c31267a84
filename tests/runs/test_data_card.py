"""The data card of a run says what it was trained and tested on, from its records; a run on a corpus of text."""

import json
import re

from adaptive_bench.runs import plan, run


def test_a_run_on_a_corpus_leaves_a_data_card(config_of, tmp_path):
    folder = tmp_path / "data" / "letters"
    folder.mkdir(parents=True)
    for split, count in (("train", 60), ("validation", 3)):
        rows = ({"text": f"{split} document number {n} " * 3} for n in range(count))
        (folder / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    train = {"max_length": 64}
    config = config_of("dense,gateskip", tasks=("perplexity:letters",), data_dir=tmp_path / "data", train=train)
    outcome = run(config)
    assert not outcome.failures
    assert {row["metric"] for row in outcome.rows} >= {"bits_per_byte,none"}
    card = (outcome.folder / "data_card.md").read_text(encoding="utf-8")
    assert "documents of letters, train split" in card
    trained = next(line for line in card.splitlines() if re.match(r"\| *1 *\|", line))
    lengths = trained.split("|")[8].split("/")
    assert int(lengths[1]) == int(lengths[3]) == 64, "packed to full length"
    assert re.search(r"\| perplexity:letters +\| letters .*\| 3 +\| 0 +\| [0-9a-f]{16} +\| [0-9a-f]{16}", card)
    points = [sweep.record.point(0.0) for sweep in plan(config).sweeps]
    assert len(points) == 2 and len({point.data["documents_sha256"] for point in points}) == 1


def test_nothing_trained_is_said(config_of):
    outcome = run(config_of("dense", train={"steps": 0}))
    card = (outcome.folder / "data_card.md").read_text(encoding="utf-8")
    assert "Nothing was trained." in card and "nano_qa_ll" in card
