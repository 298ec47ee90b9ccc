"""What the user hands over: the description of the job, the target that builds it, where it can be cut."""
