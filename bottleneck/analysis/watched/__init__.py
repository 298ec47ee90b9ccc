"""What the stacks of a job that runs say of it: pure functions of samples, without torch and numpy."""
