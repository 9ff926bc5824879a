"""What all benchmarks share: rounds, results, bars, the machine."""
