"""How people write sizes, periods, rates and addresses: one module each, used by all programs."""
