"""Samples of every type: the slow part is named."""

import pytest
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import default_collate

from tests.kinds.slow_parts import check_slow_part, collate_of
from tests.kinds.slow_samples import (
    Samples,
    as_list,
    like_dict,
    like_frozen_record,
    like_nothing_at_times,
    like_pair,
    like_record,
    like_sequence,
    like_text,
    stack_images,
    without_none,
)

pytestmark = pytest.mark.integration

KINDS = {
    "dict": (like_dict, default_collate, ("augment",)),
    "named tuple": (like_pair, default_collate, ("augment",)),
    "dataclass": (like_record, stack_images, ("collate",)),
    "frozen dataclass": (like_frozen_record, as_list, ("augment",)),
    "text": (like_text, as_list, ("load",)),
    "None at times": (like_nothing_at_times, without_none, ("load",)),
    "variable size": (like_sequence, pad_sequence, ("augment",)),
}


CASES = [(kind, slow) for kind, (*_, parts) in KINDS.items() for slow in parts]


@pytest.mark.parametrize(("kind", "slow"), CASES, ids=[f"{kind} {slow}" for kind, slow in CASES])
def test_samples_of_a_type(kind, slow):
    like, collate, _ = KINDS[kind]
    check_slow_part(slow, Samples(slow, like), collate_fn=collate_of(slow, collate))
