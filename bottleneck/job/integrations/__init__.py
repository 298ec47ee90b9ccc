"""Jobs that come from the trainers of other packages."""
