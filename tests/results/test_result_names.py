"""Spans of stages that could not be told apart."""

import pytest

from bottleneck.results.names import span_of, stages_in


def test_the_name_of_a_span_has_those_of_its_stages():
    assert stages_in("handoff+collate") == ("handoff", "collate")
    assert stages_in("collate+fetch") == ("collate", "fetch")
    assert stages_in("load") == ("load",)


def test_a_plus_sign_that_the_user_wrote_joins_nothing():
    assert stages_in("copy+paste") == ("copy+paste",)


@pytest.mark.parametrize(
    ("stage", "spans", "span"),
    [
        ("collate", ["compute", "handoff", "collate", "load"], "collate"),
        ("collate", ["compute", "handoff+collate", "fetch"], "handoff+collate"),
        ("augment", ["compute", "handoff+collate", "fetch"], "fetch"),
        ("augment", ["compute", "handoff", "collate+fetch"], "collate+fetch"),
        ("load", ["compute", "handoff+collate+fetch"], "handoff+collate+fetch"),
        ("load", ["compute", "handoff", "collate", "augment"], "load"),
    ],
)
def test_the_span_that_a_stages_work_is_part_of(stage, spans, span):
    assert span_of(stage, spans) == span
