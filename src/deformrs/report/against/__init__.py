"""Our results beside the paper's tables: one page, one CSV file and the figures."""
