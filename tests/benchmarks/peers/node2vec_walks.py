"""PyPI's node2vec, which follows the authors' program in Python: an edge list to walks, in one process.

node2vec_walks.py EDGES.csv P Q NUM_WALKS WALK_LENGTH
-> {"walks"}
"""

import json
import sys

import networkx
from node2vec import Node2Vec

edges = sys.argv[1]
p, q = map(float, sys.argv[2:4])
num_walks, walk_length = map(int, sys.argv[4:6])
with open(edges) as lines:
    next(lines)  # the header
    graph = networkx.parse_edgelist(lines, delimiter=",")
made = Node2Vec(graph, walk_length=walk_length, num_walks=num_walks, p=p, q=q, workers=1, seed=1, quiet=True)
sys.stdout.write(json.dumps({"walks": len(made.walks)}) + "\n")
