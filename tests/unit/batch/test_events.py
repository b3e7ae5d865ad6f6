"""What hinders a job that takes part in a batch is shown if it lasts, and not too often."""

from mpi_runtime.batch.run.events import AGAIN_S, LASTS_S, Trouble


def test_a_problem_is_shown_when_it_lasts_and_again_from_time_to_time() -> None:
    said: list[str] = []
    trouble = Trouble(said.append)
    trouble.note("stale", 0.0)
    trouble.note("", 1.0)
    trouble.note("stale", 2.0)
    trouble.note("stale", 1.0 + LASTS_S)
    assert (said, trouble.problem) == ([], ""), "a look that fails now and then is no problem"
    shown_s = 2.0 + LASTS_S
    for passed_s in (0.0, 1.0, AGAIN_S - 1.0):
        trouble.note("full", shown_s + passed_s)
    assert (said, trouble.problem) == (["full"], "full")
    trouble.note("full", shown_s + AGAIN_S)
    assert said == ["full", "full"]
    trouble.note("", shown_s + AGAIN_S + 1.0)
    assert trouble.problem == ""
