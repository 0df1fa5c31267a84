"""One root for every error a user can meet; each kind carries the exit code of the command line."""


class AdaptiveBenchError(Exception):
    """Something the user can act on. The message states the rule, the value received and the next step."""

    exit_code = 1


class UsageError(AdaptiveBenchError):
    """The request itself is wrong: unknown name, bad spec, bad config, dial out of range."""

    exit_code = 2


class EnvironmentProblem(AdaptiveBenchError):
    """The request is fine, the surroundings are not: data or model out of reach, folder not writable, out of memory."""


class TrainingDiverged(AdaptiveBenchError):
    """The training loss stopped being a finite number."""


class Interrupted(AdaptiveBenchError):
    """The user stopped the run; what is on disk can be resumed."""
