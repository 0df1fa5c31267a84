from adaptive_bench.store.keys import changed, digests


def test_a_flipped_byte_and_a_missing_file_are_noticed(tmp_path):
    files = [tmp_path / "a", tmp_path / "b" / "c"]
    (tmp_path / "b").mkdir()
    for file in files:
        file.write_bytes(b"content")
    known = digests(tmp_path, files)
    assert list(known) == ["a", "b/c"] and changed(tmp_path, known) == []
    files[0].write_bytes(b"contens")
    files[1].unlink()
    assert changed(tmp_path, known) == ["a", "b/c"]
