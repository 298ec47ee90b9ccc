"""What workers record of the user's code, and how that is served again."""
