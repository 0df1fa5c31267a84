import warnings

from adaptive_bench.cli import quiet


def test_what_the_user_has_set_stays(monkeypatch):
    environment = {"TRANSFORMERS_VERBOSITY": "debug"}
    monkeypatch.setattr(quiet.os, "environ", environment)
    with warnings.catch_warnings(record=True) as shown:
        quiet.quiet()
        warnings.warn("chatter", UserWarning, stacklevel=1)
    assert environment["TRANSFORMERS_VERBOSITY"] == "debug"
    assert environment["TQDM_DISABLE"] == "1"
    assert shown == []
