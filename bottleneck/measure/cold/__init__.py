"""Files that are not in memory: dropped from the page cache, and read again."""
