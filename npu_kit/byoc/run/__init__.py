"""What happens when a compiled model runs: regions, models that take arrays, and libraries on disk."""
