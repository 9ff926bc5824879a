"""Word count and top editions: the small classics, over text and edits, real or generated."""
