"""Training objectives: node classification, several labels, link prediction."""
