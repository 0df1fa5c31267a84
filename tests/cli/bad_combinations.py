"""Options that do nothing beside others, as cases of `bad_input`."""

USAGE = "Usage error"

_TEXT = ("inspect", "nano", "--text", "absent.txt")
_TASKS = ("inspect", "nano", "--tasks", "nano_math")
IDLE = [
    ((*command, option, *value), USAGE, f"{option} does nothing {where}")
    for command, option, value, where in (
        (("generate", "{here}", "a"), "--top-p", ("0.9",), "without sampling. Leave it out, or sample with"),
        (("generate", "{here}", "a"), "--seed", ("5",), "without sampling. Leave it out, or sample with"),
        (("generate", "{here}", "a", "--dial", "1"), "--calibration", ("pooled",), "beside --dial"),
        (_TEXT, "--limit", ("3",), "with --text"),
        (_TEXT, "--num-fewshot", ("3",), "with --text"),
        (_TEXT, "--data-dir", (".",), "with --text"),
        ((*_TEXT, "--answer", "absent.txt"), "--max-new-tokens", ("3",), "with --answer"),
        (_TASKS, "--max-new-tokens", ("3",), "with --tasks"),
        ((*_TASKS, "-o", "x.csv"), "--json", (), "beside -o x.csv"),
        ((*_TASKS, "-o", "x.svg"), "--pos", ("en_core_web_sm",), "in a picture"),
        (("headroom", "nano", "--tasks", "nano_math", "-o", "-"), "--json", (), "beside -o -"),
        (("speculate", "nano", "--tasks", "nano_math", "-o", "-"), "--json", (), "beside -o -"),
        (("samples", "{here}", "--json"), "--full", (), "beside --json"),
        (("leaderboard", "verify", ".", "--from-records"), "--documents", ("3",), "with --from-records"),
        *(
            (("run", "--dry-run"), option, value, "with --dry-run")
            for option, *value in (
                *(("--jobs", "2"), ("--overwrite", "always"), ("--no-recheck",), ("--time",), ("--table-only",)),
                *(("--wide",), ("--open",)),
            )
        ),
        *(
            (("run", "--table-only"), option, value, "with --table-only")
            for option, *value in (
                *(("--jobs", "2"), ("--overwrite", "always"), ("--no-recheck",), ("--shard", "1/2")),
                *(("--cell", "a"), ("--launcher", "slurm"), ("--resources", "x.yaml")),
            )
        ),
    )
]
