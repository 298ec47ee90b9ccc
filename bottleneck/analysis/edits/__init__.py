"""The edit of a piece of advice, as a patch, and its proof."""
