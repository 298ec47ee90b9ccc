"""What the user hands over: the description of a training job, and where its dataset can be cut."""
