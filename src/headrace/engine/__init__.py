"""The driver's epoch loop and what it runs on.

`plan/decisions` decides and knows neither clock nor files; `driver` acts. `spark` and
`driver/local` are the two substrates that run the tasks of an epoch.
"""
