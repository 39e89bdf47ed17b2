"""Skip-gram training of gensim from a file of walks, the faster one of its two interfaces.

    gensim_train.py WALKS.txt VERTICES
    {"dimensions", "window", "negative", "workers", "seed", "out"} -> {"tokens", "wall_s", "cpu_s"}

Training alone is timed; the vocabulary is built before. Vectors go to the file `out`, by vertex.
"""

import sys

import numpy as np
from gensim.models import Word2Vec
from serving import Clock, serve

WALKS, VERTICES = sys.argv[1], int(sys.argv[2])


def answer(request: dict) -> dict:
    model = Word2Vec(
        vector_size=request["dimensions"], window=request["window"], sg=1, hs=0, negative=request["negative"],
        min_count=1, sample=0, workers=request["workers"], epochs=1, seed=request["seed"],
    )  # fmt: skip
    model.build_vocab(corpus_file=WALKS)
    with Clock() as clock:
        model.train(
            corpus_file=WALKS, total_words=model.corpus_total_words, total_examples=model.corpus_count, epochs=1
        )
    vectors = np.zeros((VERTICES, request["dimensions"]), np.float32)
    vectors[np.array(model.wv.index_to_key, np.int64)] = model.wv.vectors
    np.save(request["out"], vectors)
    return {"tokens": model.corpus_total_words, **clock.seconds()}


serve(answer)
