"""What is printed during a run becomes lines that are short, few and without escapes."""

from adaptive_bench.jobs.worker import StdoutForwarder


def test_lines_are_told_whole_and_clean(lines):
    stream = StdoutForwarder(lines)
    print("one", "two", file=stream)
    print("\x1b[2J\x07thr", end="", file=stream)
    assert lines.lines == ["one two"]
    print("ee", file=stream)
    assert lines.lines == ["one two", "three"]


def test_megabytes_are_cut_and_many_lines_left_out(lines):
    stream = StdoutForwarder(lines)
    print("x" * 4_000_000, file=stream)
    print("\n" * 1000, file=stream)
    for number in range(1000):
        print(number, file=stream)
    assert len(lines.lines) == 51 and all(len(text) < 400 for text in lines.lines)
    assert lines.lines[-1] == "More than 50 lines were printed during the run; the others are left out."
