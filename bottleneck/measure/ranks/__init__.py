"""Jobs of many ranks: all run the same steps at the same time, by the schedule of the first one."""
