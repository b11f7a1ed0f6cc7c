"""What ranks with different secrets, or none, are told, and what a secret is for."""

from integration.core.launch.separate_ranks import EXPECTED, SECRET, TO_BE_ENDURED, finish, garbage


def test_different_secrets_are_told_in_one_line_on_each_machine(ranks):
    ended = finish(ranks.start(0, **SECRET), ranks.start(1, PADDLEVIT_DIST_SECRET="another secret of tests"))
    assert [code for code, _ in ended] == [2, 2]
    for rank, (_, err) in enumerate(ended):
        assert err.startswith(f"error: rank(s) [{1 - rank}] have another secret than rank {rank}: set ")
        assert err.count("\n") == 1


def test_a_secret_on_one_machine_only_is_told_in_one_line_on_each(ranks):
    (code, err), (other_code, other_err) = finish(ranks.start(0), ranks.start(1, **SECRET))
    assert (code, other_code) == (2, 2)
    assert err.splitlines()[-1].startswith("error: rank(s) [1] have a secret, and rank 0 has none: set ")
    assert other_err.startswith("error: rank(s) [0] have no secret, and rank 1 has one: set ")


def test_a_secret_that_paddles_launcher_has_written_down_is_told(ranks):
    ended = finish(*(ranks.start(rank, PADDLE_LOCAL_SIZE="1", **SECRET) for rank in range(2)))
    assert [code for code, _ in ended] == [0, 0]
    assert ended[0][1].startswith("note: Paddle's launcher has written PADDLEVIT_DIST_SECRET to files in its --log_dir")
    assert ended[0][1].count("\n") == 1 and ended[1][1] == ""


def test_without_a_secret_whoever_comes_first_is_believed(ranks):
    """What the secret is for."""
    first = ranks.start(0)
    ranks.wait_for_store()
    ranks.start(1, "--evil", "--polite")
    ranks.wait_for("executed")
    first.kill()


def test_garbage_to_the_store_of_a_users_own_program(ranks):
    processes = [ranks.start(rank, "--open", "--wait", **SECRET) for rank in range(2)]
    ranks.wait_for("joined")
    held = garbage(ranks.ports[0], TO_BE_ENDURED)
    (ranks.folder / "go").touch()
    assert [code for code, _ in finish(*processes)] == [0, 0]
    assert ranks.gathered() == [EXPECTED] * 2
    for connection in held:
        connection.close()
