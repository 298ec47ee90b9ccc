"""Makes the parts of the documentation that come from real runs."""
