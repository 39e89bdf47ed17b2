"""What the project is measured against: `make bench` runs it beside its peers; `.scaling` shows the cost by size."""
