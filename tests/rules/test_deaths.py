"""The table "what dies, what happens" is that of the tests that kill just that."""

from tests.deaths import PAGE, ROWS, shown_by, table


def test_each_row_has_a_test_and_each_such_test_a_row() -> None:
    assert shown_by().keys() == ROWS.keys()


def test_the_page_has_the_table() -> None:
    assert f"\n{table()}\n" in PAGE.read_text(), "write it again: python -m tests.deaths"
