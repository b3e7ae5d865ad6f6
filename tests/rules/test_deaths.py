"""The table "what dies, what happens" is that of the tests that kill just that."""

from tests.deaths import PAGE, README, ROWS, shown_by, table


def test_each_row_has_a_test_and_each_such_test_a_row() -> None:
    assert shown_by().keys() == ROWS.keys()


def test_the_pages_have_the_table() -> None:
    for page, with_tests in ((PAGE, True), (README, False)):
        assert f"\n{table(with_tests)}\n" in page.read_text(), "write it anew: python -m tests.deaths"
