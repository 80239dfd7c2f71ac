"""What of the documentation is made by programs: pictures, and pages of reference. `make docs` runs them."""
