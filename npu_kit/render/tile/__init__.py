"""Pictures of one tile of a step: where it stands in the output, and what it needs."""
