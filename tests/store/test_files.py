"""Files of records that are read once while somebody looks at them, and anew by everybody else."""

import threading

from adaptive_bench.store.files import files_of, read_once


def test_who_looks_in_another_thread_leaves_nothing_behind(tmp_path):
    entered, leave = threading.Event(), threading.Event()

    def look():
        with read_once():
            entered.set()
            leave.wait(10)

    other = threading.Thread(target=look)
    with read_once():
        other.start()
        entered.wait(10)
    leave.set()  # the one that came second leaves second
    other.join()
    assert files_of(tmp_path).content("0.json") is None
    (tmp_path / "0.json").write_text("{}")
    assert files_of(tmp_path).content("0.json") == b"{}"
