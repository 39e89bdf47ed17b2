"""What people look at: the terminal's tables, comparisons of runs, and pictures."""
