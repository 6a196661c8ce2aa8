"""The messages of horo are those of docs/errors.md: every row is made and compared with the page."""

import making
import pytest
import table

ROWS = table.load()
JOBS = making.jobs_of(ROWS)


@pytest.fixture(scope="module")
def page():
    return making.DOCUMENT.read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize("name", JOBS)
def test_every_message_is_the_one_in_the_document(name, page):
    if reason := making.missing(JOBS[name]):
        pytest.skip(reason)
    said = making.make(JOBS[name])
    wrong = [line for row in JOBS[name] if (line := making.line_of(row, said[row.name])) not in page]
    if wrong:
        pytest.fail("not in docs/errors.md (tools/errors --write):\n" + "\n".join(wrong), pytrace=False)


def test_every_row_of_the_document_is_made(page):
    found = [making.what_of(line) for line in page]
    assert sorted(what for what in found if what not in ("", making.COLUMNS[0])) == sorted(row.what for row in ROWS)
