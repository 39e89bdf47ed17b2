"""Training objectives: node classification, several labels, node regression, link prediction."""
