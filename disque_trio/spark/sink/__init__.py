"""The sink of the data source ``disque``: adds rows as jobs, and saves those that nodes refuse."""
