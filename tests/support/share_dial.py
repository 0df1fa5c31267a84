"""What methods of tests have in common whose dial is the share of tokens that they skip."""

from adaptive_bench.method import DialSpec, Method


class ShareDial(Method):
    """Its dial is the share itself."""

    @property
    def dial(self):
        return DialSpec("share", 0.0, 1.0, 0.0)

    def dial_for(self, saved_tokens):
        return saved_tokens
