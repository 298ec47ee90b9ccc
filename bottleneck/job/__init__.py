"""What the user hands over: the description of a training job, and where its dataset can be cut."""

import sys

from bottleneck._pydata import share_public_names

# Jobs say `from bottleneck import Pipeline`, and load in spawned workers too: also where that name is pydata's.
share_public_names(sys.modules["bottleneck"])
