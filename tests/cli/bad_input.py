"""What users get wrong: command lines, files and plugins, each with the kind of error it has to end in.

A case is (arguments, kind, words): the words stand in the message, white space aside. `Usage` is the kind of a mistake
that the parser of the command line finds. `{model}` is a tiny model, `{data}` a data folder, `{here}` the current one.
"""

USAGE, ENVIRONMENT, PLUGIN, PARSER = "Usage error", "Environment problem", "Plugin fault", "Usage"
EXIT_CODES = {USAGE: 2, PARSER: 2, ENVIRONMENT: 1, PLUGIN: 1}

_RUN_OPTIONS = (
    *("--methods", "--tasks", "--model", "--config", "--seeds", "--levels", "--axis", "--timing"),
    *("--limit", "--num-fewshot", "--train-steps", "--train-on", "--data-dir", "--out", "--device"),
)
_TEXT_OPTIONS = tuple(option for option in _RUN_OPTIONS if option not in ("--limit", "--num-fewshot", "--train-steps"))

# Found 4: accepted silently.
EMPTY = [
    *((("run", option, ""), USAGE, f"{option} needs a value") for option in _TEXT_OPTIONS),
    *((("run", option, "  "), USAGE, f"{option} needs a value") for option in _TEXT_OPTIONS),
    (("run", "--plugin", ""), USAGE, "--plugin needs a value"),
    (("run", "--limit", ""), USAGE, "--limit needs a value"),
    (("list", "methods", "--out", ""), USAGE, "--out needs a value"),
    (("list", "methods", "--model", ""), USAGE, "--model needs a value"),
    (("list", "methods", "--plugin", ""), USAGE, "--plugin needs a value"),
    (("leaderboard", ""), USAGE, "needs a value"),
    (("leaderboard", "--format", ""), USAGE, "--format needs a value"),
    (("check", ""), USAGE, "needs a value"),
    (("check", "gateskip", "-o", ""), USAGE, "--output needs a value"),
    (("time", "--model", ""), USAGE, "--model needs a value"),
    (("time", "--batch", ""), USAGE, "--batch needs a value"),
    (("doctor", "--out", ""), USAGE, "--out needs a value"),
    (("new-method", ""), USAGE, "NAME needs a value"),
]
REPEATED = [
    *(
        (("run", option, "1", option, "2"), USAGE, f"{option} takes one value, got it 2 times")
        for option in _RUN_OPTIONS
    ),
    (("run", "--methods=dense", "--methods", "mod"), USAGE, "a list has commas"),
    (("run", "--seeds", "1", "--seeds", "2", "--seeds", "3"), USAGE, "got it 3 times"),
    (("list", "methods", "--model", "a", "--model", "b"), USAGE, "--model takes one value"),
    (("list", "runs", "--out", "a", "--out", "b"), USAGE, "--out takes one value"),
    (("leaderboard", "--axis", "net", "--axis", "core"), USAGE, "--axis takes one value"),
    (("leaderboard", "--format", "terminal", "--format", "markdown"), USAGE, "--format takes one value"),
    (("check", "mod", "-o", "a", "-o", "b"), USAGE, "--output takes one value"),
    (("time", "--device", "cpu", "--device", "cpu"), USAGE, "--device takes one value"),
    (("doctor", "--out", "a", "--out", "b"), USAGE, "--out takes one value"),
    (("new-method", "a_b", "-o", "a", "-o", "b"), USAGE, "--output takes one value"),
]
# Every option that takes a list, by what stands before it, with two of its items.
_LISTS = [
    *(
        (("run",), option, items)
        for option, items in {
            "--methods": ("dense", "mod"),
            "--tasks": ("nano_math", "nano_qa"),
            "--train-on": ("nano_math", "nano_qa"),
            "--seeds": ("1", "2"),
            "--levels": ("0", "0.1"),
            "--track": ("wandb", "trackio"),
            "--cell": ("a", "b"),
        }.items()
    ),
    (("time",), "--batch", ("1", "8")),
    (("time",), "--savings", ("0", "0.5")),
    (("time",), "--methods", ("dense", "mod")),
    (("steps",), "--steps", ("320", "640")),
    (("rates", "--methods", "mod"), "--grid", ("0.1", "0.2")),
    (("headroom", "nano"), "--tasks", ("nano_math", "nano_qa")),
    (("headroom", "nano", "--tasks", "nano_math"), "--levels", ("0.1", "0.2")),
    (("list", "methods", "--model", "nano"), "--methods", ("dense", "mod")),
]
LISTS = [
    case
    for command, option, (one, other) in _LISTS
    for case in (
        ((*command, option, f"{one},{other},{one}"), USAGE, "every item of a list stands there once"),
        ((*command, option, f"{one},,{other}"), USAGE, "before every comma"),
        ((*command, option, f",{one}"), USAGE, "before every comma"),
    )
] + [
    (("run", "--set", "evaluation.grid=0,0.1,0"), USAGE, "--set evaluation.grid is wrong: every item"),
    (("run", "--set", "train.target=[0.1, 0.1]"), USAGE, "--set train.target is wrong: every item"),
    (("run", "--set", "methods=[dense, dense]"), USAGE, "--set methods is wrong: every item"),
    (("run", "--set", "tasks=[nano_math, '']"), USAGE, "--set tasks is wrong: no item"),
    (("run", "--set", "train.lora.targets=q_proj,,v_proj"), USAGE, "before every comma"),
]
# Found 3 and 4: flags and their values.
FLAGS = [
    (("run", "--seeds", "0"), USAGE, "--seeds is wrong: a run has from 1 to 1000 seeds, got 0"),
    (("run", "--seeds", "-3"), USAGE, "--seeds is wrong"),
    (("run", "--seeds", "1001"), USAGE, "--seeds is wrong"),
    (("run", "--seeds", "9" * 30), USAGE, "--seeds is wrong"),
    (("run", "--seeds", "1e9"), USAGE, "--seeds takes"),
    (("run", "--seeds", "one"), USAGE, "--seeds takes"),
    (("run", "--seeds", "1;2"), USAGE, "--seeds takes"),
    (("run", "--seeds", "1,-2"), USAGE, "--seeds is wrong"),
    (("run", "--seeds", "1,99999999999999999999"), USAGE, "--seeds is wrong"),
    (("run", "--seeds", ","), USAGE, "--seeds"),
    (("run", "--levels", "5"), USAGE, "--levels is wrong"),
    (("run", "--levels", "0.1,1"), USAGE, "--levels is wrong"),
    (("run", "--levels", "nan"), USAGE, "--levels is wrong"),
    (("run", "--levels", "inf"), USAGE, "--levels is wrong"),
    (("run", "--levels", "-0.1"), USAGE, "--levels is wrong"),
    (("run", "--levels", "10%"), USAGE, "--levels takes"),
    (("run", "--levels", ",,"), USAGE, "--levels"),
    (("run", "--limit", "0"), USAGE, "--limit is wrong"),
    (("run", "--limit", "-5"), USAGE, "--limit is wrong"),
    (("run", "--limit", "1.5"), PARSER, "--limit"),
    (("run", "--limit", "all"), PARSER, "--limit"),
    (("run", "--num-fewshot", "-1"), USAGE, "--num-fewshot is wrong"),
    (("run", "--num-fewshot", "two"), PARSER, "--num-fewshot"),
    (("run", "--train-steps", "-1"), USAGE, "--train-steps is wrong"),
    (("run", "--train-steps", "9" * 12), USAGE, "Lower --train-steps"),
    (("run", "--train-steps", "9" * 40), USAGE, "--train-steps"),
    (("run", "--train-steps", "1e3"), PARSER, "--train-steps"),
    (("run", "--axis", "watts"), USAGE, "--axis is wrong"),
    (("run", "--overwrite", "sometimes"), PARSER, "only-missing"),
    (("run", "--track", "paper"), USAGE, "--track is wrong"),
    (("run", "--axis", "NET"), USAGE, "--axis is wrong"),
    (("run", "--data-dir", "absent"), ENVIRONMENT, "data folder must exist"),
    (("run", "--config", "nanno"), USAGE, "Did you mean 'nano'?"),
    (("run", "--config", "absent.yaml"), ENVIRONMENT, "absent.yaml"),
    (("run", "--config", "/"), USAGE, "No config is called"),
    (("run", "--methode", "mod"), PARSER, "--methods"),
    (("run", "--dry"), PARSER, "--dry-run"),
    (("run", "extra"), PARSER, "extra"),
    (("runn",), PARSER, "runn"),
    (("list",), PARSER, "what"),
    (("list", "metods"), PARSER, "metods"),
    (("list", "configs", "--model", "nano"), USAGE, "list methods"),
    (("list", "runs", "--status", "finished"), USAGE, "done, partial, unfinished, damaged"),
    (("list", "runs", "--since", "yesterday"), USAGE, "a day like 2026-11-20"),
    (("list", "tasks", "--task", "gsm8k"), USAGE, "list runs"),
    (("lm-eval", "run", "--tasks", ""), USAGE, "no empty values"),
    (("show", "nowhere"), USAGE, "no such run"),
    (("list", "methods", "--methods", "mod"), USAGE, "list methods --model"),
    (("leaderboard", "--format", "html"), USAGE, "No leaderboard is called 'html'"),
    (("leaderboard", "nowhere"), USAGE, "adaptive-bench run"),
    (("leaderboard", "submit", "nowhere"), USAGE, "no such run"),
    (("leaderboard", "verify", "nowhere"), ENVIRONMENT, "missing"),
    (("leaderboard", "verify", "nowhere", "--from-records", "--record"), USAGE, "measures nothing"),
    (("leaderboard", "publish", "nowhere"), USAGE, "index.html"),
    (("leaderboard", "findings", "nowhere"), USAGE, "adaptive-bench run"),
    (("leaderboard",), ENVIRONMENT, "adaptive-bench run"),
    (("check",), USAGE, "check takes methods or --all"),
    (("check", "mod", "--all"), USAGE, "check takes methods or --all"),
    (("check", "gateskp"), USAGE, "Did you mean 'gateskip'?"),
    (("check", "gateskip[shape"), USAGE, "has the form"),
    (("time", "--batch", "0"), USAGE, "--batch takes whole numbers from 1"),
    (("time", "--batch", "many"), USAGE, "--batch takes whole numbers"),
    (("time", "--prompt", "0"), USAGE, "--prompt takes whole numbers"),
    (("time", "--new", "-1"), USAGE, "--new takes whole numbers"),
    (("time", "--savings", "2"), USAGE, "--savings takes shares"),
    (("time", "--savings", "nan"), USAGE, "--savings takes shares"),
    (("time", "--rounds", "0"), USAGE, "--rounds takes"),
    (("time", "--threads", "0"), PARSER, "--threads"),
    (("time", "--precision", "fp64"), USAGE, "--precision is fp32 or bf16"),
    (("time", "--run", "nowhere"), USAGE, "no such run"),
    (("time", "--methods", "modd"), USAGE, "Did you mean 'mod'?"),
    (("steps", "--steps", "320"), USAGE, "twice the one before, got [320]"),
    (("steps", "--steps", "320,960"), USAGE, "twice the one before"),
    (("steps", "--steps", "many"), USAGE, "--steps takes"),
    (("steps", "--level", "0.12"), USAGE, "Set --level"),
    (("steps", "--methods", "base"), USAGE, "methods that are trained"),
    (("headroom", "nano", "--tasks", "nano_mth"), USAGE, "Did you mean 'nano_math'?"),
    (("headroom", "nano", "--tasks", "nano_math", "--limit", "0"), PARSER, "--limit"),
    (("headroom", "nano", "--tasks", "nano_math", "--levels", "2"), USAGE, "--levels takes savings"),
    (("headroom", "nano", "--tasks", "nano_math", "--kv", "defer"), USAGE, "--kv is one of"),
    (("headroom", "nanno", "--tasks", "nano_math"), ENVIRONMENT, "Did you mean 'nano'?"),
    (("headroom", "nano"), PARSER, "--tasks"),
    (("new-method", "My Method"), USAGE, "lower-case"),
    (("new-method", "gateskip"), USAGE, "exists already"),
    (("new-method", "torch"), USAGE, "Python module"),
]
# Accepted silently until now, or refused without the value that was given.
NUMBERS = [
    (("run", "--limit", "abc"), PARSER, "'abc'"),
    (("samples", "nowhere", "--docs", "many"), PARSER, "'many'"),
    (("tune", "--trials", "0"), PARSER, "'0'"),
    (("run", "--limit", "9" * 20), USAGE, "--limit"),
    (("run", "--limit", "10000001"), USAGE, "--limit is wrong: should be less than or equal to 10000000"),
    (("run", "--num-fewshot", "10000001"), USAGE, "--num-fewshot is wrong"),
    (("run", "--set", "evaluation.batch_size=100000000000"), USAGE, "evaluation.batch_size is wrong"),
    (("run", "--set", "train.checkpoint_every=100000000000"), USAGE, "train.checkpoint_every is wrong"),
    (("run", "--cell-timeout", "1e300"), USAGE, "--cell-timeout is wrong"),
    (("run", "--stall-warning", "1e300"), USAGE, "--stall-warning is wrong"),
    (("run", "--flops", "nan"), PARSER, "'nan'"),
    (("run", "--flops", "inf"), USAGE, "--flops takes a finite number"),
    (("run", "--table-only", "--wait", "nan"), PARSER, "'nan'"),
    (("run", "--jobs", "9" * 30), USAGE, "--jobs takes whole numbers"),
    (("run", "--set", "train=5"), USAGE, "--set train is wrong: keys with values are needed"),
    (("run", "--set", "evaluation.grid=5"), USAGE, "--set evaluation.grid is wrong: a list is needed, such as"),
    (("run", "--set", "train.betas=0.9"), USAGE, "--set train.betas is wrong: a list is needed"),
    (("run", "--set", "train.batch_size=many"), USAGE, "--set train.batch_size is wrong: a whole number is needed"),
    (("run", "--set", "shuffled=7"), USAGE, "true or false is needed"),
]
PLACES = [
    (("status", "--out", "nowhere"), ENVIRONMENT, "'nowhere' does not exist"),
    (("list", "runs", "--out", "nowhere"), ENVIRONMENT, "'nowhere' does not exist"),
    (("run", "--resources", "nowhere"), USAGE, "Add --launcher slurm"),
    (("run", "--launcher", "slurm", "--resources", "nowhere"), ENVIRONMENT, "none at 'nowhere'"),
    (("run", "--launcher", "slrum"), USAGE, "Did you mean 'slurm'?"),
    (("run", "--shard", "9/2"), USAGE, "--shard 2/8"),
    (("run", "--out", "a\x1b[31mb"), USAGE, "--out takes a path without control characters"),
    (("run", "--out", "a\nb"), USAGE, "--out takes a path without control characters"),
    (("status", "--out", "a\x07b"), USAGE, "--out takes a path without control characters"),
    (("run", "--set", 'out="a\\eb"'), USAGE, "a path has no control characters"),
]
# Found 3: names of methods, parameters and tasks.
NAMES = [
    (("run", "--methods", ","), USAGE, "At least one method"),
    (("run", "--methods", "gateskip["), USAGE, "has the form"),
    (("run", "--methods", "bad name!"), USAGE, "has the form"),
    (("run", "--methods", "gateskip@"), USAGE, "has the form"),
    (("run", "--methods", "gateskip@papr"), USAGE, "Semantics must be one of"),
    (("run", "--methods", "gateskip[shape]"), USAGE, "key=value"),
    (("run", "--methods", "gateskip[shape=scalar,shape=vector]"), USAGE, "twice"),
    (("run", "--methods", "gateskp"), USAGE, "Did you mean 'gateskip'?"),
    (("run", "--methods", "gateskip[shap=scalar]"), USAGE, "Did you mean 'shape'?"),
    (("run", "--methods", "gateskip[shape=round]"), USAGE, "shape is wrong"),
    (("run", "--methods", "gateskip[sparsity_weight=1e999]"), USAGE, "finite"),
    (("run", "--methods", "gateskip[sparsity_weight=nan]"), USAGE, "finite"),
    (("run", "--methods", "gateskip[sparsity_weight=-inf]"), USAGE, "sparsity_weight is wrong"),
    (("run", "--methods", "gateskip[sparsity_weight=much]"), USAGE, "sparsity_weight is wrong"),
    (("run", "--methods", "gateskip;mod"), USAGE, "has the form"),
    (("run", "--methods", "dense," + "x" * 5000), USAGE, "No method is called"),
    (("run", "--methods", "\x1b[31mred"), USAGE, "has the form"),
    (("run", "--tasks", ","), USAGE, "--tasks is wrong"),
    (("run", "--tasks", "gsm8"), USAGE, "Did you mean 'gsm8k'?"),
    (("run", "--tasks", "nano_mth"), USAGE, "Did you mean 'nano_math'?"),
    (("run", "--tasks", "hellaswagg"), USAGE, "Did you mean 'hellaswag'?"),
    (("run", "--tasks", "../etc/passwd"), USAGE, "No task is called"),
    (("run", "--tasks", "zzzzzz" * 500), USAGE, "No task is called"),
    (("run", "--tasks", "nano_math", "--train-on", "nano_mat"), USAGE, "Did you mean 'nano_math'?"),
    (("run", "--tasks", "piqa"), USAGE, "--train-on nano_math"),
]
# Files given with --config; the file is `mine.yaml`.
_GOOD = "methods: [dense]\ntasks: [nano_qa_ll]\n"
CONFIGS = [
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
    (_REGISTER + "register('methods', '')(object)\n", USAGE, "A registered name has letters"),
    (_REGISTER + "register('methods', 'bad name!')(object)\n", USAGE, "A registered name has letters"),
    (_REGISTER + "register('methods', 'a/b')(object)\n", USAGE, "A registered name has letters"),
    (_REGISTER + "register('methods', None)(object)\n", USAGE, "A registered name has letters"),
    (_REGISTER + "register('metods', 'mine')(object)\n", USAGE, "plugin group is one of"),
    (_REGISTER + "register('methods', 'dense')(object)\n", USAGE, "exists already"),
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
        ("def decide(self, view): return Decision(scale=view.hidden[:, :1])", "scale has the shape"),
        ("def decide(self, view): return Decision(input_scale=view.hidden[0])", "input_scale has the shape"),
        ("def decide(self, view): return 1 / 0", "ZeroDivisionError"),
        ("def decide(self, view): return view.nothing", "AttributeError"),
        ("def decide(self, view): raise KeyError('x')", "KeyError"),
        ("def decide(self): return EXECUTE_ALL", "TypeError"),
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
    ("register('models', 'mine')(lambda: exit(3))", ("run", "--model", "mine"), PLUGIN, "SystemExit"),
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
