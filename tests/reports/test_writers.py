"""Any document, in each format: what the writers do with it, whatever it says."""

from bottleneck.reports.document import PAGES, Bar, Column, Document, Items, Paragraph, Section, Table
from bottleneck.reports.html import render_html
from bottleneck.reports.markdown import render_markdown
from bottleneck.reports.text import TextReport

COLUMNS = (
    Column("name", "code"),
    Column("rate", "number"),
    Column("cost", "interval"),
    Column("", "bar", on=("text", "markdown")),
    Column("where", "path", on=PAGES),
    Column("finding", "finding"),
)
ROWS = (
    ("device", "1,702 ± 12", "9.4 ms (9.1–9.7)", Bar(1.0), "a.py:3", ""),
    ("raw", "648 ± 5", "0.07 ms (−0.1 to 0.2)", Bar(0.5), "b.py:4", "real"),
)
TABLE = Table(COLUMNS, ROWS)


def of(*blocks, folded=False):
    return Document((Section("A title", blocks, folded=folded),))


def text(*blocks, width=80):
    return TextReport(of(*blocks)).plain(width)


def test_numbers_line_up_where_they_end_and_their_errors_begin():
    assert text(TABLE) == (
        "  name    rate        cost                                         finding\n"
        "  device  1,702 ± 12   9.4 ms (9.1–9.7)      ████████████████████\n"
        "  raw       648 ± 5   0.07 ms (−0.1 to 0.2)  ██████████            real\n"
    )


def test_where_there_is_little_room_first_bars_go_then_intervals_then_columns():
    without_bars = text(TABLE, width=56)
    assert "█" not in without_bars
    assert "(9.1–9.7)" in without_bars
    without_intervals = text(TABLE, width=50)
    assert "(9.1–9.7)" not in without_intervals
    assert "1,702 ± 12   9.4 ms" in without_intervals
    assert text(TABLE, width=30) == (
        "  name\n  device\n    rate: 1,702 ± 12\n    cost: 9.4 ms (9.1–9.7)\n"
        "  raw\n    rate: 648 ± 5\n    cost: 0.07 ms (−0.1 to\n      0.2)\n    finding: real\n"
    )


def test_a_terminal_shows_some_rows_and_says_so():
    table = Table((Column("name", "code"),), tuple((f"n{at}",) for at in range(9)), most=3)
    assert text(table).endswith("  n2\n  … and 6 more; the other formats list all.\n")
    assert "n8" in render_markdown(of(table))
    assert text(Paragraph("said"), Table(COLUMNS, ROWS, most=0)) == "said\n"


def test_columns_that_say_nothing_and_tables_without_rows_are_left_out():
    bare = Table(COLUMNS, tuple((*row[:5], "") for row in ROWS))
    for document in (text(bare), render_markdown(of(bare)), render_html(of(bare))):
        assert "finding" not in document
    assert render_markdown(of(Table(COLUMNS, ()))) == "\n"


def test_a_page_has_no_bars_and_a_terminal_no_paths():
    page = render_html(of(TABLE))
    assert "█" not in page
    assert '<td class="path">a.py:3</td>' in page
    assert "a.py" not in text(TABLE)
    assert "| `raw` | 648 ± 5 | 0.07 ms (−0.1 to 0.2) | ████████ | `b.py:4` | real |" in render_markdown(of(TABLE))


def test_a_warning_is_an_alert_but_for_one_in_a_fold():
    doubts = Items(("one", "two"), "Warning", warn=True)
    assert render_markdown(of(doubts)) == "> [!WARNING]\n> one\n\n> [!WARNING]\n> two\n"
    assert "\n\n- one\n- two\n\n</details>" in render_markdown(of(doubts, folded=True))
    assert text(doubts) == "Warning: one\nWarning: two\n"


def test_a_command_between_backticks_is_code_on_a_page():
    page = render_html(of(Paragraph("`bottleneck tune` tries <it>, in `a.py`")))
    assert "<code>bottleneck tune</code> tries &lt;it&gt;, in `a.py`</p>" in page


def test_only_the_first_answer_is_the_heading_of_the_page():
    answers = (Section("", (Paragraph("first", "answer"),)), Section("Part", (Paragraph("second", "answer"),)))
    page = render_html(Document(answers, "the title"))
    assert "<h1>first</h1>" in page
    assert "<summary><h2>Part</h2></summary>\n<p>second</p>" in page
    assert "<title>the title</title>" in page


def test_everything_that_a_page_shows_is_cleaned_and_escaped():
    page = render_html(
        of(Paragraph("a\x1b[31mb <b> /home/eve/x"), Table((Column("<i>"),), (("\u202eghp_" + "a" * 20,),)))
    )
    assert "<p>ab &lt;b&gt; ~/x</p>" in page
    assert '<th scope="col">&lt;i&gt;</th>' in page
    assert "<td>[hidden]</td>" in page
