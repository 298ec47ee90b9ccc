"""The user's job: the description of a training job, and the sites where its dataset can be cut."""

import sys

from bottleneck._pydata import share_public_names

# Jobs write `from bottleneck import Pipeline`, also in spawned workers, and also if that name is pydata's.
share_public_names(sys.modules["bottleneck"])
