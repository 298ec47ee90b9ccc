"""Serving what was recorded in the place of the user's stages."""
