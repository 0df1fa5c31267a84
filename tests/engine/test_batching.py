"""Batchmates, padding and rows that leave change nothing in `bench` (X4); where a paper's rule depends on them, that
stays visible."""

import pytest
import torch

from adaptive_bench.model.generation import new_tokens

BENCH_SPECS = ["dense", "random_skip[kv=evict]", "random_skip", "gateskip[kv=copy_below]", "gateskip", "mod"]
LENGTHS = (11, 5, 8, 1)


def set_dial(model, saved_tokens=0.3):
    model.dial = model.method.dial_for(min(saved_tokens, model.method.max_saved_tokens))


def padded(text, lengths, side):
    """Rows cut to lengths and padded on a side: ids and mask [B, S]."""
    columns, width = torch.arange(max(lengths)), max(lengths)
    ids, mask = torch.zeros(len(lengths), width, dtype=torch.long), torch.zeros(len(lengths), width, dtype=torch.bool)
    for row, length in enumerate(lengths):
        mask[row] = columns >= width - length if side == "left" else columns < length
        ids[row, mask[row]] = text[row, :length]
    return ids, mask


@pytest.mark.parametrize("spec", BENCH_SPECS)
def test_rows_that_leave_do_not_change_the_others(spec, shared_model, random_text):
    """X4, X17, T-GS7: generation in a batch equals solo generation, whoever finishes when and in whatever order."""
    model, text = shared_model(spec), random_text(len(LENGTHS), max(LENGTHS))
    set_dial(model)

    def stop(new):
        return sum(new) % 5 == 0

    solo = [
        new_tokens(model, text[row : row + 1, :length], max_new_tokens=9, stop=stop, eos_token_ids=(7,))[0]
        for row, length in enumerate(LENGTHS)
    ]
    assert len({len(new) for new in solo}) > 1, "the rows of this test should finish at different lengths"
    order = [2, 0, 3, 1]
    ids, mask = padded(text[order], [LENGTHS[row] for row in order], "left")
    together = new_tokens(model, ids, mask, max_new_tokens=9, stop=stop, eos_token_ids=(7,))
    assert together == [solo[row] for row in order]


@pytest.mark.parametrize("family", ["llama", "mistral"])
@pytest.mark.parametrize("spec", BENCH_SPECS)
def test_ledger_of_a_batch_is_the_sum_of_its_rows(spec, family, shared_model, random_text):
    """X9: padding and finished rows are never counted, in no bucket but waste."""
    model, text = shared_model(spec, family), random_text(len(LENGTHS), max(LENGTHS))
    set_dial(model)

    def stop(new):
        return new[-1] % 4 == 0

    for row, length in enumerate(LENGTHS):
        new_tokens(model, text[row : row + 1, :length], max_new_tokens=8, stop=stop)
    alone = model.compute_report()
    model.reset_ledger()
    ids, mask = padded(text, LENGTHS, "left")
    new_tokens(model, ids, mask, max_new_tokens=8, stop=stop)
    together = model.compute_report()
    for phase in ("prefill", "decode"):
        for key in ("dense_macs", "eligible", "executed", "tokens"):
            assert together["counts"][phase][key] == alone["counts"][phase][key], (phase, key)
        needed = [[macs[:-1] for macs in report["counts"][phase]["macs"]] for report in (together, alone)]
        assert needed[0] == needed[1]
        assert [together[phase][axis] for axis in ("tokens", "core", "net")] == pytest.approx(
            [alone[phase][axis] for axis in ("tokens", "core", "net")]
        )
