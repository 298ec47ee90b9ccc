"""One module for each kind of cause; each has a tuple `RULES`."""
