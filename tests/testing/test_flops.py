"""FLOPs are those that PyTorch's own counter sees."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from adaptive_bench.spec import MethodSpec
from adaptive_bench.testing.checks.execution import eager_attention
from adaptive_bench.testing.instruments import ExecutedFlops
from adaptive_bench.testing.subject import ShortTraining, Subject


def both(run):
    with FlopCounterMode(display=False) as wanted:
        run()
    with ExecutedFlops() as counted:
        run()
    assert counted.total > 0
    return wanted.get_total_flops(), counted.total


@pytest.mark.parametrize("spec", ["gateskip", "skipgpt"])
def test_of_a_training_step(spec):
    training = ShortTraining(Subject(MethodSpec(spec), "llama"), total_steps=2)
    with eager_attention(training.model):
        wanted, counted = both(lambda: training.run(1, 1))
    assert counted == wanted


@pytest.mark.parametrize("grad", [torch.no_grad, torch.inference_mode, torch.enable_grad])
def test_operators_that_are_made_of_others(grad):
    """In inference mode such operators arrive whole."""
    one, other = torch.ones(2, 3, 5), torch.ones(7, 5)
    with grad():
        wanted, counted = both(lambda: torch.matmul(torch.nn.functional.linear(one, other), torch.ones(7, 2)))
    assert counted == wanted == 2 * 2 * 3 * 7 * (5 + 2)
