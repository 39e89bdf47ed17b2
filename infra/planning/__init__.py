"""What a run takes, forecast and held against what it took: time, memory, cost."""
