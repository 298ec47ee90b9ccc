"""What the job uses of the machine while its blocks run."""
