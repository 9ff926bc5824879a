"""A web page over checkpoints: what pipelines do, wherever they run."""
