"""Task groups: names that stand for several tasks."""

from adaptive_bench.task import TaskGroup

PAPER_GENERATIVE = TaskGroup(
    "paper-generative", "Generative columns of the GateSkip paper's main table", ("gsm8k", "csqa")
)
PAPER_LOGLIKELIHOOD = TaskGroup(
    "paper-loglikelihood",
    "Log-likelihood columns of the GateSkip paper's main table",
    ("mmlu_stem", "hellaswag", "csqa_ll", "piqa", "openbookqa", "winogrande"),
)
PAPER_OUT_OF_DOMAIN = TaskGroup(
    "paper-out-of-domain", "The GateSkip paper's written tasks that no method was trained on", ("mmlu_gen", "piqa_gen")
)
