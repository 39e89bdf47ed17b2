"""Building blocks of compiled kernels: random numbers, prefetching, pages, caches."""
