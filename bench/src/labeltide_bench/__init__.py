"""labeltide-bench: the paper's experiments and ours. Studies, records, pages, public data and simulations."""
