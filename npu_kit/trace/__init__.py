"""What a run leaves behind: events and totals, in one form for the forecast and for the run."""
