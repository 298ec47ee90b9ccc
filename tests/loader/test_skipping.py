"""Batches that nobody uses are left out, where the loader gives what its workers return as it is."""

import pytest
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader

from bottleneck.loader import modes
from bottleneck.loader.switched import SwitchedLoader


class Wrapping(DataLoader):
    """Works on each batch, so that it must get them all."""

    def __iter__(self):
        for batch in super().__iter__():
            yield batch + 1


@pytest.mark.parametrize(("kind", "skips"), [(DataLoader, True), (StatefulDataLoader, True), (Wrapping, False)])
def test_everything_real_is_handed_over_only_where_it_has_to_be(kind, skips):
    loader = SwitchedLoader(kind(range(8), batch_size=2), (), seed=0, hang_s=60.0)
    try:
        loader.switch_real(modes.OBSERVE)
        assert loader.mode == modes.ALL & (~modes.HANDOFF if skips else ~0) | modes.OBSERVE
        assert (loader.next_batch()[0] is None) == skips
    finally:
        loader.close()
