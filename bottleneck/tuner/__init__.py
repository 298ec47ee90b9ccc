"""Tuning: apply the fixes one after the other and measure each against the job."""
