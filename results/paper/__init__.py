"""The committed runs beside the tables of the paper."""
