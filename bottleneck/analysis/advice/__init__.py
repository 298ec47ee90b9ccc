"""What to do about what was found."""
