"""The fixes applied one after the other and measured against the job: advice becomes proof."""
