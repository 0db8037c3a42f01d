"""What is known of a machine's GPUs, for Prometheus: `families` says what, `text` how, `serving` to whom."""
