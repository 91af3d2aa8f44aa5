"""The program of a plan as text: folded into loops, row by row, or compared with another plan's."""
