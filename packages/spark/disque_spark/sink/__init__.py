"""The sink of the data source ``disque``: adds rows as jobs, and saves rows that nodes refuse."""
