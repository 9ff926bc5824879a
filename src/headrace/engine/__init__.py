"""The driver's epoch loop and what it runs on.

`planning` and `verdict` decide and have neither clock nor files; `driver` acts;
`spark` and `local` are the two substrates that carry an epoch's rows.
"""
