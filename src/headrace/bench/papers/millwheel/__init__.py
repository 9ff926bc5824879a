"""The experiments of the paper on MillWheel."""
