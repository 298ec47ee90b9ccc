"""The plot of blocks."""
