"""The documentation; `make` holds what writes its parts that come from real runs."""
