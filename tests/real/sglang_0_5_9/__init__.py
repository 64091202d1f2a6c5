"""The version of the incident."""
