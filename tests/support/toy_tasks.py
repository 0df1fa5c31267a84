"""A plugin with tasks about sums of one, the smallest of each kind."""

PLUGIN = """
from pathlib import Path

from adaptive_bench.method import register
from adaptive_bench.task import Task

WRITE, ACC, BITS = "exact_match,none", "acc,none", "bits_per_byte,none"
KNOWN = {"toy_write": ("generative", WRITE, 0.0), "toy_read": ("loglikelihood", BITS, 8.0)}
KNOWN |= {f"toy_{name}": ("loglikelihood", ACC, 0.25) for name in ("choose", "untested", "empty")}
KNOWN["toy_odd"] = ("loglikelihood", "perplexity,none", 0.25)
for name, (kind, metric, chance) in KNOWN.items():
    folder = Path(__file__).parent / name
    register("tasks", name)(Task(name, "toy", kind, folder, (metric,), chance, None, data_folders=()))
"""
DOCS = """
import datasets

def load(**_):
    def rows(start, count):
        return datasets.Dataset.from_list([{"q": f"{n} + 1?", "a": str(n + 1)} for n in range(start, start + count)])
    return {"validation": rows(20, 6), "test": rows(0, 6), "empty": rows(0, 0)}
"""
COMMON = """
custom_dataset: !function docs.load
validation_split: validation
test_split: test
doc_to_text: "{{q}}="
metadata: {version: 1.0}
"""
WRITE = """
output_type: generate_until
doc_to_target: "{{a}}"
generation_kwargs: {until: ["\\n"], max_gen_toks: 4, do_sample: false}
metric_list: [{metric: exact_match, aggregation: mean, higher_is_better: true}]
"""
CHOOSE = """
output_type: multiple_choice
doc_to_choice: ["1", "2", "3", "4"]
doc_to_target: "0"
metric_list: [{metric: acc, aggregation: mean, higher_is_better: true}]
"""
READ = """
output_type: loglikelihood_rolling
doc_to_target: "{{q}} {{a}}"
metric_list: [{metric: bits_per_byte, aggregation: bits_per_byte, higher_is_better: false}]
"""
ODD = """
output_type: loglikelihood
doc_to_target: "{{a}}"
metric_list: [{metric: perplexity, aggregation: perplexity, higher_is_better: false}]
"""
TASKS = {
    "toy_write": COMMON + WRITE,
    "toy_choose": COMMON + CHOOSE,
    "toy_read": COMMON.replace('"{{q}}="', '""') + READ,
    "toy_odd": COMMON + ODD,
    "toy_untested": COMMON.replace("validation_split: validation\n", "") + CHOOSE,
    "toy_empty": COMMON.replace("test_split: test", "test_split: empty") + CHOOSE,
}


def write_plugin(home):
    """The file to load; its tasks lie beside it."""
    for name, text in TASKS.items():
        (home / name).mkdir()
        (home / name / "docs.py").write_text(DOCS)
        (home / name / f"{name}.yaml").write_text(f"task: {name}\n{text}")
    (home / "plugin.py").write_text(PLUGIN)
    return home / "plugin.py"
