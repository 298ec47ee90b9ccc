"""Many ranks: all do the same steps at the same time, by the schedule of the first one."""
