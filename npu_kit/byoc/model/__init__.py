"""Relax code: how the kit reads it, walks it, brings it into one form, and what of it TVM does not survive."""
