"""What is done in a cluster: pods bound, gangs taken back, reasons told. Each writes; none decides."""
