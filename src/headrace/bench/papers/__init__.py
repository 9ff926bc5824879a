"""The experiments of the five papers: what each measured, what is measured here, the same shape?"""
