"""Planning: everything that is decided about a region before it runs, by arithmetic on graph and machine."""
