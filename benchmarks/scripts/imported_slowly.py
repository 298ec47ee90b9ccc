"""A module that takes three seconds to import, as large libraries do."""

import time

time.sleep(3.0)
