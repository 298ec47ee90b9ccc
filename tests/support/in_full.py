"""Reports with everything in them."""

from bottleneck.reports.render import for_terminal, render


def render_in_full(result, format):
    """A report; that for a terminal has all tables."""
    return for_terminal(result, verbose=True).plain() if format == "text" else render(result, format)
