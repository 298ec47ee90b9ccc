"""Recording what the user's stages do, so that any of them can be served without being run."""
