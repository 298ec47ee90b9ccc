"""The user's DataLoader: recorded, replayed, and switched while it runs."""
