"""Look at a few samples more closely: the data touched for them, and the outputs that come out the same again."""
