"""What users get wrong on command lines, each with the kind of error it has to end in.

A case is (arguments, kind, words): the words stand in the message, white space aside. `Usage` is the kind of a mistake
that the parser of the command line finds. `{model}` is a tiny model, `{data}` a data folder, `{here}` the current one,
`{entry}` one of the board.
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
    (("run", "--tasks", "nano_math", "nano_qa"), USAGE, "no spaces between them: --tasks FIRST,nano_qa"),
    (("generate", "last", "-5 + 3"), PARSER, "An argument that begins"),
    (("run", "--seeds", "1", "--seeds", "2", "--seeds", "3"), USAGE, "got it 3 times"),
    (("list", "methods", "--model", "a", "--model", "b"), USAGE, "--model takes one value"),
    (("list", "runs", "--out", "a", "--out", "b"), USAGE, "--out takes one value"),
    (("leaderboard", "--axis", "net", "--axis", "core"), USAGE, "--axis takes one value"),
    (("leaderboard", "--format", "terminal", "--format", "markdown"), USAGE, "--format takes one value"),
    (("check", "mod", "-o", "a", "-o", "b"), USAGE, "--output takes one value"),
    (("time", "--device", "cpu", "--device", "cpu"), USAGE, "--device takes one value"),
    (("doctor", "--out", "a", "--out", "b"), USAGE, "--out takes one value"),
    *(
        (("run", option, "a", option, "b"), USAGE, "2 times. Give it once.")
        for option in ("--config", "--model", "--out", "--device")
    ),
    (("headroom", "nano", "--tasks", "nano_math", "--batch", "1", "--batch", "2"), USAGE, "2 times. Give it once."),
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
    (("speculate", "nano", "--tasks", "nano_math"), "--batch", ("1", "8")),
    (("speculate", "nano", "--tasks", "nano_math"), "--savings", ("0", "0.5")),
    (("speculate", "nano"), "--tasks", ("nano_math", "nano_qa")),
    (("inspect", "nano"), "--tasks", ("nano_math", "nano_qa")),
    (("inspect", "nano", "--tasks", "nano_math"), "--methods", ("random_skip", "static_depth")),
    (("inspect", "nano", "--tasks", "nano_math"), "--savings", ("0", "0.5")),
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
# Lists of numbers of which one is out of range.
RANGES = [
    *(
        (("rates", "--methods", "gateskip", "--grid", bad), USAGE, "--grid takes learning rates above 0 and up to 100")
        for bad in ("nan", "inf", "-1", "0", "1e9", "0.01,nan", ",")
    ),
    *(
        (("steps", "--steps", bad), USAGE, "--steps takes numbers of steps")
        for bad in ("0", "-1,-2", "1e9", "99999999999")
    ),
    *(
        (("time", "--batch", bad), USAGE, "--batch takes whole numbers from 1")
        for bad in ("0", "-1", "1e9", "99999999999", ",")
    ),
    *((("time", "--savings", bad), USAGE, "--savings takes shares") for bad in ("-1", "1", "inf", ",")),
    *(
        (("inspect", "nano", "--tasks", "nano_math", "--savings", bad), USAGE, "--savings takes shares")
        for bad in ("-1", "1", ",")
    ),
    *(
        (("headroom", "nano", "--tasks", "nano_math", "--levels", bad), USAGE, "--levels takes savings between")
        for bad in ("0", "1", "nan", ",")
    ),
    *(
        (("speculate", "nano", "--tasks", "nano_math", "--batch", bad), USAGE, "--batch takes whole")
        for bad in ("-1", "99999999999")
    ),
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
    (("run", "--config", "{here}"), USAGE, "`adaptive-bench list configs` shows the presets"),
    (("run", "--config", "absent.yaml"), ENVIRONMENT, "absent.yaml"),
    (("run", "--config", "/"), USAGE, "a YAML file, which ends in .yaml, got '/'"),
    (("run", "--methode", "mod"), PARSER, "--methods"),
    (("run", "--dry"), PARSER, "--dry-run"),
    (("run", "extra"), PARSER, "extra"),
    (("runn",), PARSER, "runn"),
    (("list",), PARSER, "what"),
    (("list", "metods"), PARSER, "metods"),
    (("list", "configs", "--model", "nano"), USAGE, "list methods"),
    (("list", "runs", "--status", "finished"), USAGE, "done, partial, unfinished, damaged"),
    (("list", "runs", "--since", "yesterday"), USAGE, "a day like 2026-11-20"),
    (("list", "runs", "--since", "20261120"), USAGE, "a day like 2026-11-20, got '20261120'"),
    (("list", "runs", "--since", "2026-W47-5"), USAGE, "a day like 2026-11-20"),
    (("list", "tasks", "--task", "gsm8k"), USAGE, "list runs"),
    (("lm-eval", "run", "--tasks", ""), USAGE, "no empty values"),
    (("show", "nowhere"), USAGE, "no such run"),
    (("list", "methods", "--methods", "mod"), USAGE, "list methods --model"),
    (("leaderboard", "--format", "html"), USAGE, "No leaderboard is called 'html'"),
    (("leaderboard", "nowhere"), USAGE, "adaptive-bench run"),
    (("leaderboard", "submit", "nowhere"), USAGE, "no such run"),
    (("leaderboard", "verify", "nowhere"), USAGE, "An entry has a points.parquet"),
    (("leaderboard", "ranks", ".", "--before", "file.txt"), USAGE, "--before is a folder of entries, got 'file.txt'"),
    (("leaderboard", "publish", "nowhere"), USAGE, "index.html"),
    (("leaderboard", "paper", "--format", "json"), USAGE, "--format is that of one table, got json"),
    (("leaderboard", "findings", "nowhere"), USAGE, "adaptive-bench run"),
    (("leaderboard",), ENVIRONMENT, "adaptive-bench run"),
    (("check",), USAGE, "check takes methods or --all"),
    (("check", "mod", "--all"), USAGE, "check takes methods or --all"),
    (("check", "gateskp"), USAGE, "Did you mean 'gateskip'?"),
    (("check", "gateskip[shape"), USAGE, "has the form"),
    (("time", "--batch", "0"), USAGE, "--batch takes whole numbers from 1"),
    (("time", "--batch", "many"), USAGE, "--batch takes whole numbers"),
    (("time", "--prompt", "0"), PARSER, "--prompt"),
    (("time", "--new", "-1"), PARSER, "--new"),
    (("time", "--savings", "2"), USAGE, "--savings takes shares"),
    (("time", "--savings", "nan"), USAGE, "--savings takes shares"),
    (("time", "--rounds", "0"), PARSER, "--rounds"),
    (("time", "--threads", "0"), PARSER, "--threads"),
    (("time", "--precision", "fp64"), USAGE, "--precision is fp32 or bf16"),
    (("time", "--run", "nowhere"), USAGE, "no such run"),
    (("time", "--methods", "modd"), USAGE, "Did you mean 'mod'?"),
    (("speculate", "nano"), PARSER, "--tasks"),
    (("speculate", "nano", "--tasks", "nano_mth"), USAGE, "Did you mean 'nano_math'?"),
    (("speculate", "nanno", "--tasks", "nano_math"), ENVIRONMENT, "Did you mean 'nano'?"),
    (("speculate", "nano", "--tasks", "nano_math", "--batch", "0"), USAGE, "--batch takes whole numbers from 1"),
    (("speculate", "nano", "--tasks", "nano_math", "--savings", "nan"), USAGE, "--savings takes shares"),
    (("speculate", "nano", "--tasks", "nano_math", "--draft-length", "0"), PARSER, "--draft-length"),
    (("speculate", "nano", "--tasks", "nano_math", "--max-new-tokens", "1"), PARSER, "got '1'"),
    (("inspect",), PARSER, "RUN|MODEL"),
    (("inspect", "nano"), USAGE, "got neither"),
    (("inspect", "nano", "--text", "absent.txt"), ENVIRONMENT, "absent.txt"),
    (("inspect", "nano", "--tasks", "nano_mth"), USAGE, "Did you mean 'nano_math'?"),
    (("inspect", "nanno", "--tasks", "nano_math"), ENVIRONMENT, "Did you mean 'nano'?"),
    (("inspect", "nano", "--tasks", "nano_math"), USAGE, "no --methods"),
    (("inspect", "nano", "--tasks", "nano_math", "--methods", "gateskip"), USAGE, "a method that needs none"),
    (("inspect", "nano", "--tasks", "nano_math", "--savings", "nan"), USAGE, "--savings takes shares"),
    (("inspect", "nano", "--tasks", "nano_math", "--limit", "0"), PARSER, "--limit"),
    (("inspect", "nano", "--tasks", "nano_math", "-o", "page.doc"), USAGE, "ends in one of .html"),
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
    (("run", "--set", "evaluation.temperature=1e-300"), USAGE, "should be greater than or equal to 0.000001"),
    (("run", "--set", "train.betas=[0.9]"), USAGE, "The config key 'train.betas.1' is needed. Give it too."),
    (("generate", "{model}", "a", "--temperature", "1e-300"), USAGE, "at least 1e-06, got 1e-300"),
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
    (("generate", "nowhere", "a", "--seed", "-1"), PARSER, "'-1'"),
    (("time", "--threads", "10000000"), PARSER, "--threads"),
    (("speculate", "nano", "--tasks", "nano_math", "--threads", "10000000"), PARSER, "--threads"),
    (("run", "--table-only", "--wait", "1e300"), PARSER, "--wait"),
    (("headroom", "nano", "--tasks", "nano_math", "--seed", str(2**32)), PARSER, "--seed"),
    (("inspect", "nano", "--tasks", "nano_math", "--limit", "10000001"), USAGE, "whole numbers up to 10000000"),
    (("run", "--jobs", "9" * 30), USAGE, "--jobs takes whole numbers"),
    (("steps", "--jobs", "-3"), PARSER, "-3"),
    (("rates", "--jobs", "0"), PARSER, "0"),
    (("run", "--set", "train=5"), USAGE, "--set train is wrong: keys with values are needed"),
    (("run", "--set", "evaluation.grid=5"), USAGE, "--set evaluation.grid is wrong: a list is needed, such as"),
    (("run", "--set", "train.betas=0.9"), USAGE, "--set train.betas is wrong: a list is needed"),
    (("run", "--set", "train.batch_size=many"), USAGE, "--set train.batch_size is wrong: a whole number is needed"),
    (("run", "--set", "shuffled=7"), USAGE, "true or false is needed"),
]
# Bytes that are no UTF-8, as Python hands them on.
BYTES = [
    (command, USAGE, "Arguments are text in UTF-8, got b'a\\xff'")
    for command in (
        ("generate", "nowhere", "a\udcff"),
        ("run", "--out", "a\udcff"),
        ("run", "--tasks", "a\udcff"),
        ("lm-eval", "run", "--tasks", "a\udcff"),
    )
]
PLACES = [
    *(
        (
            (*command, "circle"),
            USAGE,
            f"{option} takes a path that leads somewhere, but the links of 'circle' lead in a",
        )
        for command, option in (
            (("run", "--out"), "--out"),
            (("run", "--data-dir"), "--data-dir"),
            (("status", "--out"), "--out"),
            (("leaderboard", "--out"), "--out"),
            (("leaderboard", "build", "-o"), "--output"),
        )
    ),
    (("diff", "{here}", "/dev/null"), USAGE, "got '/dev/null', which is a file"),
    (("diff", "{here}", "{here}"), USAGE, "has none of them. `adaptive-bench list runs` shows the runs."),
    (("check", "gateskip", "--family", "typo"), USAGE, "No family is called 'typo'"),
    (("list", "runs", "--methods", "mod"), USAGE, "got `list runs` with --methods mod. Try"),
    *(
        ((*command, "{entry}", *more), USAGE, "is an entry of a board. `adaptive-bench leaderboard verify")
        for command, *more in (
            (("export",),),
            (("samples",),),
            (("retry",),),
            (("generate",), "a"),
            (("export-model",), "--method", "gateskip", "-o", "new"),
            (("time", "--run"),),
        )
    ),
    (("leaderboard", "submit", "{entry}"), USAGE, "is an entry already"),
    (("leaderboard", "submit", "{here}"), USAGE, "An entry is made of a run, but"),
    (("tune", "--study", "../x"), USAGE, "which is no path, got '../x'"),
    (("tune", "--study", ".."), USAGE, "which is no path, got '..'"),
    (("tune", "--study", "a/b"), USAGE, "which is no path, got 'a/b'"),
    (("tune", "--confirm", "1001"), PARSER, "--confirm"),
    (("run", "--tuned", "../x"), USAGE, "which is no path, got '../x'"),
    (("inspect", "nano", "--tasks", "nano_math", "--methods", "random_skip", "--pos", "absent"), ENVIRONMENT, "--pos"),
    (("show", "last", "--out", "absent"), ENVIRONMENT, "'absent' does not exist"),
    (("samples", "{here}", "--out", "absent"), ENVIRONMENT, "'absent' does not exist"),
    (("headroom", "nano", "--tasks", "nano_math", "-o", "/dev/null/x"), ENVIRONMENT, "/dev/null/x"),
    (("speculate", "nano", "--tasks", "nano_math", "-o", "/dev/null/x"), ENVIRONMENT, "/dev/null/x"),
    (("rates", "--methods", "mod", "-o", "/dev/null/x"), ENVIRONMENT, "/dev/null/x"),
    (("steps", "-o", "/dev/null/x"), ENVIRONMENT, "/dev/null/x"),
    (("headroom", "nano", "--tasks", "nano_math", "--data-dir", "absent"), ENVIRONMENT, "data folder must exist"),
    (("speculate", "nano", "--tasks", "nano_math", "--data-dir", "absent"), ENVIRONMENT, "data folder must exist"),
    (("run", "--cell", ","), USAGE, "--cell names at least one cell"),
    (("run", "--track", ","), USAGE, "--track is wrong"),
    (("run", "--cell", "nosuchcell"), USAGE, "the plan has none 'nosuchcell'"),
    (("run", "--model", "x" * 300), USAGE, "at most 255 bytes"),
    (("status", "--out", "x" * 300), USAGE, "at most 255 bytes"),
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
    (("run", "--methods", "dense gateskip"), USAGE, "Several are separated by commas: dense,gateskip"),
    (("run", "--tasks", "nano_math nano_qa"), USAGE, "Several are separated by commas: nano_math,nano_qa"),
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
