"""From regions to one runtime module: each is lowered to its graph, planned, and compiled to a call of the kit."""
