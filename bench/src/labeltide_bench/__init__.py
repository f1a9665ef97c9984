"""labeltide-bench: benchmark studies, their records and reports, public data sets and simulations."""
