def test_a_sound_machine_without_network_is_in_order(command, tmp_path):
    result = command("doctor", "--out", str(tmp_path / "new"))
    assert result.exit_code == 0
    for what in ("torch", "devices", "hub", "cache", "data", "output"):
        assert what in result.stdout


def test_what_is_missing_is_named_with_the_next_step(command, tmp_path):
    (tmp_path / "file").touch()
    result = command("doctor", "--data-dir", str(tmp_path / "absent"), "--out", str(tmp_path / "file" / "below"))
    assert result.exit_code == 1
    assert "data, output" in " ".join(result.stderr.split())
    assert "--data-dir" in result.stdout
    assert "--out" in result.stdout


def test_a_link_that_leads_nowhere_is_no_place_for_results(command, tmp_path):
    (tmp_path / "away").symlink_to("nowhere")
    assert "away is a link that leads to no folder" in command("doctor", "--out", "away").stdout
