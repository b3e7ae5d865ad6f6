"""The table "what dies, what happens" is that of the tests that kill just that."""

from tests.deaths import PAGE, ROWS, shown_by, table, table_of_tests


def test_each_row_has_a_test_and_each_such_test_a_row() -> None:
    assert shown_by().keys() == ROWS.keys()


def test_the_page_has_both_tables() -> None:
    for one in (table(), table_of_tests()):
        assert f"\n{one}\n" in f"{PAGE.read_text()}\n", "write them again: python -m tests.deaths"
