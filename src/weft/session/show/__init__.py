"""What people see of a session in a terminal and in a notebook: lines, tables, pictures, reports, SQL in cells."""
