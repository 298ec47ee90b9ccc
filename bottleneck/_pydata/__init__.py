"""Sharing the import name `bottleneck` with pydata's Bottleneck, which pandas and others probe for."""
