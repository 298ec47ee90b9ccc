"""`bottleneck doctor`: a check-up of machine, environment and job before anything is measured."""
