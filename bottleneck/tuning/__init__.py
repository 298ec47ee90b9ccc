"""The fixes applied one after the other and measured beside the job: advice becomes proof."""
