"""Running a plan: real tiers and tiles in step mode, the same tiles in batches in fast mode."""
