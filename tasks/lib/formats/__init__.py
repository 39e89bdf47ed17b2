"""File formats: NumPy arrays, TFRecord and tf.train.Example, Parquet."""
