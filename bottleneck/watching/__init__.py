"""A job that is watched and not experimented with: from outside for some seconds, or from inside for its whole run."""
