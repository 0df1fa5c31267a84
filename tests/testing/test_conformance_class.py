"""The class that method authors inherit."""

from adaptive_bench.testing import CHECKS, MethodConformance
from adaptive_bench.testing.backbones import FAMILIES

pytest_plugins = ["pytester"]


class TestStaticDepth(MethodConformance):
    spec = "static_depth"


def test_it_has_a_documented_test_per_check_and_family():
    tests = {name: getattr(MethodConformance, name) for name in dir(MethodConformance) if name.startswith("test_")}
    assert tests.keys() == {f"test_{check.name}_{family}" for check in CHECKS for family in FAMILIES}
    assert tests["test_ledger_gemma2"].__doc__ == next(check.asserts for check in CHECKS if check.name == "ledger")


def test_failures_and_reasons_reach_pytest(pytester):
    """Skips carry the reason, failures the message, errors in the method its traceback."""
    pytester.makepyfile(
        """
        from adaptive_bench import registry
        from adaptive_bench.method import EXECUTE_ALL
        from adaptive_bench.method import DialSpec, Method
        from adaptive_bench.testing import MethodConformance

        @registry.register("methods", "lazy")
        class Lazy(Method):
            dial = DialSpec("share", 0.0, 1.0, 0.0)

            def dial_for(self, saved_tokens):
                return saved_tokens

            def decide(self, view):
                if self.training:
                    raise KeyError("not ready")
                return EXECUTE_ALL

        class TestLazy(MethodConformance):
            spec = "lazy"
        """
    )
    result = pytester.runpytest_subprocess("-rs", "-k", "(gradients or causality or identity) and llama")
    result.assert_outcomes(failed=1, skipped=2)
    result.stdout.fnmatch_lines(["*KeyError: 'not ready'*", "*raised KeyError at *", "SKIPPED*needs determinism"])
