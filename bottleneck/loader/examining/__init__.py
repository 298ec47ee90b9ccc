"""Look at a few samples more closely: what is touched for them, and what comes out the same again."""
