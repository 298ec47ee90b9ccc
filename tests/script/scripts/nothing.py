"""No training at all: `nothing.py loader` passes over a DataLoader."""

import sys

from jobs import Photos
from torch.utils.data import DataLoader

if "loader" in sys.argv:
    for _batch in DataLoader(Photos(32), batch_size=16):
        pass
