"""What users get wrong in files: configurations, plugins and tables, each with the kind of error it has to end in.

A case is (content, kind, words): the words stand in the message, white space aside.
"""

USAGE, ENVIRONMENT, PLUGIN = "Usage error", "Environment problem", "Plugin fault"

# Files given with --config; the file is `mine.yaml`.
_GOOD = "methods: [dense]\ntasks: [nano_qa_ll]\n"
CONFIGS = [
    ("extend: nano\n", USAGE, "Did you mean 'extends'?"),
    ("extends: nano\nmethods: [dense, {gateskip: {shape: scalar}}]\n", USAGE, "such as gateskip[shape=scalar]"),
    ("", USAGE, "must hold keys and values"),
    ("- a\n- b\n", USAGE, "must hold keys and values"),
    ("a: [", USAGE, "not valid YAML"),
    ("\tmethods: dense", USAGE, "not valid YAML"),
    ("methods: [dense]\n", USAGE, "'tasks' is needed"),
    ("tasks: [nano_math]\n", USAGE, "'methods' is needed"),
    (_GOOD + "methods: [mod]\n", USAGE, "stands once, got 'methods' in line 3"),
    (_GOOD + "train: {steps: 1, steps: 2}\n", USAGE, "stands once, got 'steps'"),
    (_GOOD + "metods: [mod]\n", USAGE, "Did you mean 'methods'?"),
    (_GOOD + "train: {step: 1}\n", USAGE, "Did you mean 'steps'?"),
    (_GOOD + "evaluation: {limits: 1}\n", USAGE, "Did you mean 'limit'?"),
    (_GOOD + "train: 5\n", USAGE, "'train'"),
    (_GOOD + "train: {learning_rate: .nan}\n", USAGE, "'train.learning_rate'"),
    (_GOOD + "train: {learning_rate: 1e999}\n", USAGE, "'train.learning_rate'"),
    (_GOOD + "train: {learning_rate: 0}\n", USAGE, "'train.learning_rate'"),
    (_GOOD + "train: {precision: fp8}\n", USAGE, "'train.precision'"),
    (_GOOD + "train: {betas: [0.9]}\n", USAGE, "'train.betas"),
    (_GOOD + "train: {batch_size: 32, accumulation: 5}\n", USAGE, "must divide"),
    (_GOOD + "train: {steps: 10000000000000}\n", USAGE, "train.steps times train.batch_size"),
    (_GOOD + "train: {method_learning_rates: {gateskip: fast}}\n", USAGE, "'train.method_learning_rates.gateskip'"),
    (_GOOD + "evaluation: {grid: []}\n", USAGE, "'evaluation.grid'"),
    (_GOOD + "evaluation: {grid: [0, 5]}\n", USAGE, "Write 0.05 for 5 %"),
    (_GOOD + "evaluation: {grid: [0, .inf]}\n", USAGE, "'evaluation.grid"),
    (_GOOD + "seeds: many\n", USAGE, "'seeds'"),
    (_GOOD + "seeds: [1, x]\n", USAGE, "'seeds"),
    (_GOOD + "seeds: 5000\n", USAGE, "from 1 to 1000 seeds"),
    (_GOOD + "seeds: true\n", USAGE, "'seeds'"),
    *(
        (_GOOD + f"seeds: {value}\n", USAGE, f"take {value} in line 3 for different things")
        for value in ("010", "1:30", "yes", "No", "on", "0b11", "1__0", "2026-11-20", "1:30.5")
    ),
    (_GOOD + "seeds: [1, 010]\n", USAGE, "write a number in plain digits, or '010' in quotes"),
    (_GOOD + "model: no\n", USAGE, "write true or false, or 'no' in quotes"),
    (_GOOD + "on: 1\n", USAGE, "take on in line 3"),
    (_GOOD + "seeds:\n", USAGE, "'seeds' is wrong in mine.yaml: it has no value. Write one"),
    ("methods: [mod, static_depth[trained=true]]\n", USAGE, "quote what has brackets"),
    ("extends: mine.yaml\n", USAGE, "a preset by its name, not a file, got mine.yaml. Write for example extends"),
    (_GOOD + "levels: 0.1\n", USAGE, "'levels'"),
    (_GOOD + "model: ''\n", USAGE, "'model' is wrong in mine.yaml"),
    (_GOOD + "model: 5\n", USAGE, "'model'"),
    (_GOOD + "out: ''\n", USAGE, "'out' is wrong in mine.yaml"),
    (_GOOD + "out: [a]\n", USAGE, "'out'"),
    (_GOOD + "device: ''\n", USAGE, "'device'"),
    (_GOOD + "data_dir: ''\n", USAGE, "'data_dir'"),
    ("methods: {a: b}\ntasks: [nano_math]\n", USAGE, "'methods'"),
    ("methods: [[a]]\ntasks: [nano_math]\n", USAGE, "'methods'"),
    ("methods: [null]\ntasks: [nano_math]\n", USAGE, "'methods'"),
    ("methods: dense\ntasks: 7\n", USAGE, "'tasks'"),
    ("methods: dense\ntasks: [{a: b}]\n", USAGE, "'tasks'"),
    ("? [a, b]\n: c\n", USAGE, "plain word"),
    ("a: !!python/object/apply:os.system ['true']\n", USAGE, "not valid YAML"),
    ("a: *nothing\n", USAGE, "not valid YAML"),
    ("a: &a [*a]\n" + _GOOD, USAGE, "'a'"),
    ("a: " + "[" * 5000, USAGE, "levels deep"),
    ("x: 2026-99-99\n" + _GOOD, USAGE, "mine.yaml"),
    (
        "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 30)) + _GOOD,
        USAGE,
        "16 aliases",
    ),
    (
        "a: &a [l,l,l,l,l,l,l,l,l]\n"
        + "".join(f"{n}: &{n} [{','.join([f'*{o}'] * 9)}]\n" for o, n in zip("abcdefgh", "bcdefghi", strict=True))
        + _GOOD,
        USAGE,
        "16 aliases",
    ),
    ("x: " + "y" * 1_100_000, USAGE, "1,000,000 bytes"),
    (b"\xff\xfe\x00methods", ENVIRONMENT, "cannot be read"),
    (b"methods: \x00", USAGE, "not valid YAML"),
    (_GOOD + "for_models: {parameters: [1]}\n", USAGE, "'for_models.parameters"),
    (_GOOD + "for_models: {name: [x]}\n", USAGE, "Did you mean 'names'?"),
]
# Found 3: plugins. The file is `mine.py`; `run --plugin mine.py --methods mine`.
_REGISTER = "from adaptive_bench.registry import register\n"
PLUGINS = [
    ("", USAGE, "which does not"),
    ("x = 1\n", USAGE, "which does not"),
    ("import no_such_module\n", PLUGIN, "mine.py, line 1"),
    ("def broken(:\n", PLUGIN, "mine.py, line 1"),
    ("\n\n1 / 0\n", PLUGIN, "mine.py, line 3"),
    ("raise ValueError('\\x1b[31mred\\x07 ' + 'x' * 100000)\n", PLUGIN, "ValueError: red xxx"),
    ("import sys\nsys.exit(0)\n", PLUGIN, "SystemExit"),
    ("raise SystemExit\n", PLUGIN, "SystemExit"),
    ("quit()\n", PLUGIN, "mine.py"),
    ("raise BaseException('odd')\n", PLUGIN, "odd"),
    ("assert False, 'never'\n", PLUGIN, "never"),
    ("def f(): f()\nf()\n", PLUGIN, "RecursionError"),
    ("class E(Exception):\n    def __str__(self): return 1 / 0\nraise E\n", PLUGIN, "message cannot be shown"),
    ("open('/no/such/file')\n", PLUGIN, "FileNotFoundError"),
    (b"\x00\x01", PLUGIN, "mine.py"),
    (b"# -*- coding: nonsense -*-\n", PLUGIN, "mine.py"),
    (_REGISTER + "register('methods', '')(object)\n", PLUGIN, "A registered name has letters"),
    (_REGISTER + "register('methods', 'bad name!')(object)\n", PLUGIN, "A registered name has letters"),
    (_REGISTER + "register('methods', 'a/b')(object)\n", PLUGIN, "A registered name has letters"),
    (_REGISTER + "register('methods', None)(object)\n", PLUGIN, "A registered name has letters"),
    (_REGISTER + "register('metods', 'mine')(object)\n", PLUGIN, "plugin group is one of"),
    (_REGISTER + "register('methods', 'dense')(object)\n", PLUGIN, "exists already"),
    (_REGISTER + "register('methods', 'mine')(object)\n", PLUGIN, "subclass of adaptive_bench.method.Method"),
    (_REGISTER + "register('methods', 'mine')(lambda: 1)\n", PLUGIN, "subclass of adaptive_bench.method.Method"),
    (_REGISTER + "register('methods', 'mine')(None)\n", PLUGIN, "subclass of adaptive_bench.method.Method"),
    (_REGISTER + "@register('methods', 'mine')\nclass Mine: pass\n", PLUGIN, "subclass of"),
]
# The same, but the method is one, and fails once it has to work: `{body}` is the rest of its class.
_METHOD = _REGISTER + (
    "import torch\nfrom adaptive_bench.method import *\n"
    "from adaptive_bench.method import Decision, DialSpec, Method, MethodConfig, EXECUTE_ALL\n"
    "class Base(Method):\n"
    "    dial = DialSpec('share', 0.0, 1.0, 0.0)\n"
    "    def dial_for(self, saved_tokens): return saved_tokens\n"
    "    def decide(self, view): return EXECUTE_ALL\n"
    "@register('methods', 'mine')\nclass Mine(Base):\n"
)
METHODS = [
    (_METHOD + f"    {body}\n", PLUGIN, words)
    for body, words in (
        ("def decide(self, view): return None", "must give a Decision, got NoneType"),
        ("def decide(self, view): return True", "must give a Decision, got bool"),
        ("def decide(self, view): return view.hidden", "must give a Decision, got Tensor"),
        ("def decide(self, view): return Decision(keep=True)", "got bool"),
        ("def decide(self, view): return Decision(keep=[1, 2])", "got list"),
        ("def decide(self, view): return Decision(keep=view.hidden[..., 0])", "got float32"),
        ("def decide(self, view): return Decision(keep=view.hidden[..., 0] > 0)[0]", "mine.py, line 11, in decide"),
        ("def decide(self, view): return Decision(keep=view.hidden[0, :, 0] > 0)", "got bool (24,)"),
        ("def decide(self, view): return Decision(keep=(view.hidden > 0))", "got bool (2, 24, 32)"),
        ("def decide(self, view): return Decision(keep=view.hidden[:, :1, 0] > 0)", "got bool (2, 1)"),
        ("def decide(self, view): return Decision(scale=2.0)", "got float"),
        (
            "def decide(self, view): return Decision(scale=view.hidden[:, :1])",
            "scale has floating-point numbers of the shape",
        ),
        (
            "def decide(self, view): return Decision(input_scale=view.hidden[0])",
            "input_scale has floating-point numbers of the shape",
        ),
        ("def decide(self, view): return 1 / 0", "ZeroDivisionError"),
        ("def decide(self, view): return view.nothing", "AttributeError"),
        ("def decide(self, view): raise KeyError('x')", "KeyError"),
        ("def decide(self): return EXECUTE_ALL", "decide is a function that is called as"),
        ("def dial_for(self, saved_tokens): return 'much'", "mine"),
        ("def dial_for(self, saved_tokens): return None", "mine"),
        ("def dial_for(self, saved_tokens): raise RuntimeError('no dial')", "no dial"),
        ("def losses(self, call): return 5", "mine"),
        ("def losses(self, call): return {'a': 1}", "mine"),
        ("def losses(self, call): return {'a': (1.0, 'x')}", "mine"),
        ("def __init__(self, *a, **k): raise RuntimeError('no start')", "no start"),
        ("dial = 5", "mine"),
        ("Config = 5", "mine"),
        ("training_spec = classmethod(lambda cls, config, spec: None)", "mine"),
        ("def decide_ahead(self, call): return [1, 2]", "mine"),
        ("def begin_step(self, step): pass", "mine"),
    )
]
# Other things a plugin registers: (file, command, kind, words).
OTHERS = [
    ("register('tasks', 'mine')(5)", ("run", "--tasks", "mine"), PLUGIN, "adaptive_bench.task.Task"),
    ("register('tasks', 'mine')(print)", ("run", "--tasks", "mine"), PLUGIN, "adaptive_bench.task.Task"),
    ("register('models', 'mine')(lambda: 5)", ("run", "--model", "mine"), PLUGIN, "path of a folder"),
    ("register('models', 'mine')(lambda: '/absent')", ("run", "--model", "mine"), PLUGIN, "path of a folder"),
    ("register('models', 'mine')(lambda: 1 / 0)", ("run", "--model", "mine"), PLUGIN, "ZeroDivisionError"),
    ("register('configs', 'mine')(5)", ("run", "--config", "mine"), PLUGIN, "path of a YAML file"),
    ("register('configs', 'mine')('/absent.yaml')", ("run", "--config", "mine"), ENVIRONMENT, "absent.yaml"),
]
# Found 6 and 3: foreign or damaged tables in `runs/table.json`.
_ROW = (
    '{"method": "mod", "semantics": "bench", "task": "t", "metric": "acc,none", "axis": "net", "level": 0.1,'
    ' "score": 0.9, "low": null, "high": null, "seeds": 1, "saved_tokens": 0.2, "saved_core": 0.1, "saved_net": 0.1,'
    ' "status": "ok"}'
)
TABLES = [
    ("", ENVIRONMENT, "table.json"),
    ("[{", ENVIRONMENT, "table.json"),
    ("null", ENVIRONMENT, "list of rows"),
    ("5", ENVIRONMENT, "list of rows"),
    ('"text"', ENVIRONMENT, "list of rows"),
    ("{}", ENVIRONMENT, "list of rows"),
    ('{"rows": []}', ENVIRONMENT, "list of rows"),
    ("[1]", ENVIRONMENT, "row 1"),
    ("[null]", ENVIRONMENT, "row 1"),
    ("[[]]", ENVIRONMENT, "row 1"),
    ("[{}]", ENVIRONMENT, "has no method"),
    ('[{"method": "mod"}]', ENVIRONMENT, "has no semantics"),
    (f"[{_ROW}, {{}}]", ENVIRONMENT, "row 2"),
    ("[" + _ROW.replace("0.9", '"much"') + "]", ENVIRONMENT, "'score'"),
    ("[" + _ROW.replace('"level": 0.1', '"level": null') + "]", ENVIRONMENT, "'level'"),
    ("[" + _ROW.replace('"low": null', '"low": []') + "]", ENVIRONMENT, "'low'"),
    ("[" * 100_000, ENVIRONMENT, "table.json"),
    (b"\xff\xfe", ENVIRONMENT, "table.json"),
    ("<html></html>", ENVIRONMENT, "table.json"),
    (f"{_ROW}\n{_ROW}\n", ENVIRONMENT, "table.json"),
]
