"""Code lines of each folder against `budget.tsv`: over its number is an error, and numbers only go down (`--lower`)."""

import ast
import io
import sys
import tokenize
from collections import Counter
from pathlib import Path

ROOT, FILE = Path(__file__).parents[1], Path(__file__).with_name("budget.tsv")
SLACK = 0.02  # a folder may be so far below its number before it is to be lowered
NO_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


def code_lines(text: str) -> int:
    """Lines of a file that are neither blank nor a comment nor of a docstring."""
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    lines = {at for one in tokens if one.type not in NO_CODE for at in range(one.start[0], one.end[0] + 1)}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            lines -= set(range(node.lineno, node.end_lineno + 1))
    return len(lines)


budget = {name: int(most) for name, most in map(str.split, FILE.read_text().splitlines())}
found = Counter(dict.fromkeys(budget, 0))
for path in [one for top in {name.split("/")[0] for name in budget} for one in (ROOT / top).rglob("*.py")]:
    parts = path.relative_to(ROOT).parts
    depth = 2 if parts[0] == "adaptive_bench" and len(parts) > 2 else 1
    found["/".join(parts[:depth])] += code_lines(path.read_text())
if "--lower" in sys.argv:
    FILE.write_text("".join(f"{name}\t{min(most, found[name])}\n" for name, most in budget.items()))
    sys.exit()
print(f"{sum(found.values()) - found['tests']} lines of code, {found['tests']} of tests")
over = [
    f"{name} has {found[name]}, budget {budget.get(name, 0)}" for name in found if found[name] > budget.get(name, 0)
]
if low := [name for name, most in budget.items() if found[name] < most * (1 - SLACK)]:
    print(f"Below budget: {', '.join(low)}. Lower it: python .ci/budget.py --lower")
sys.exit(f"Over the budget of code lines ({FILE.name}): {'; '.join(over)}. Remove as much as is added." if over else 0)
