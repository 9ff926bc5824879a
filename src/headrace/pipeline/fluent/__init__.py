"""The interface by which users build a graph: `Pipeline`, `Stream` and what hangs on them."""
