"""Takes its time to be imported."""

import time

time.sleep(2.0)
