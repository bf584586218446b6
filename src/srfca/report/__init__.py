"""Reports: tables of methods and of their runs."""
